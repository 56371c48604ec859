"""A soak on the virtual GPU whose worker and supervisor are killed, by a real command."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from bench.report.results import load_runs
from bench.soak.state import Segment

ROOT = Path(__file__).parents[3]
DEADLINE_S = 120.0
TRAFFIC = (
    "device=virtual", "model=tiny", "kv_budget=64MiB", "workload=batch", "workload.rate_rps=4",
    "workload.kinds.batch.prompt.tokens=64", "workload.kinds.batch.output.tokens=16",
    "driver.clock=wall", "time_scale=10", "sample_interval_s=1",
)  # fmt: skip
"""40 requests a second, each of a few milliseconds."""


def wait_until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.04)
    return found


def children(pid: int) -> list[int]:
    try:
        lists = list(Path(f"/proc/{pid}/task").glob("*/children"))
        return [int(word) for each in lists for word in each.read_text("utf-8").split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def workers(supervisor: int) -> list[int]:
    """Jobs of its fork server, each the leader of a group; what the server starts for a moment
    while it imports is in the server's."""
    found = [child for server in children(supervisor) for child in children(server)]
    return [pid for pid in found if leads_group(pid)]


def leads_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return False


def read_part(path: Path) -> pd.DataFrame:
    """Opened once, as it may be replaced meanwhile."""
    with pq.ParquetFile(path) as file:
        rows: pd.DataFrame = file.read().to_pandas()
        return rows


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


class KilledSoak:
    """Runs `fragbench soak`, kills what a test says, and keeps what was seen on disk before."""

    def __init__(self, folder: Path, *settings: str, duration: str = "1h") -> None:
        self.out = folder / "soak"
        self.seen: set[int] = set()
        self._log = folder / "log"
        self._start(f"duration={duration}", *TRAFFIC, *settings, f"out={self.out}")

    def __enter__(self) -> KilledSoak:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()  # unless it has ended
        self.process.wait()

    def _start(self, *arguments: str) -> None:
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "bench", "soak", *arguments],
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
            )

    def books(self) -> Any:
        assert self.process.poll() is None, self._log.read_text("utf-8")
        return read_json(self.out / "soak.json")

    def segments(self) -> list[Segment]:
        books = self.books()
        return [Segment(**each) for each in books["segments"]] if books else []

    def completed(self, segments: str = "segment-*") -> set[int]:
        """Ids of requests that are on disk as completed, each of which must be there once."""
        parts = sorted(self.out.glob(f"{segments}/requests/*.parquet"))
        rows = [read_part(part)[["request_id", "status"]] for part in parts]
        if not rows:
            return set()
        found = pd.concat(rows)
        ids = found.loc[found["status"] == "completed", "request_id"]
        assert ids.is_unique
        return set(ids)

    def newest_id(self) -> int:
        """Of the requests that are on disk."""
        parts = self.out.glob("segment-*/requests/*.parquet")
        return int(pd.concat([read_part(part)["request_id"] for part in parts]).max())

    def wait_for_completed(self) -> None:
        """Until the newest segment has completed requests on disk."""
        wait_until(self._has_completed)

    def _has_completed(self) -> bool:
        segments = self.segments()
        if not segments or segments[-1].end_s is not None:
            return False
        parts = sorted((self.out / segments[-1].folder).glob("requests/*.parquet"))
        return any(len(read_part(part)) for part in parts)

    def _look(self) -> None:
        """Keeps what is on disk now; older segments do not change."""
        self.seen |= self.completed(self.segments()[-1].folder)

    def kill_worker(self) -> None:
        """And waits for the next segment."""
        worker = wait_until(lambda: workers(self.process.pid))
        before = len(self.segments())
        self._look()
        os.kill(worker[0], signal.SIGKILL)
        wait_until(lambda: len(self.segments()) > before)

    def kill_supervisor(self, *, and_worker: bool = False) -> None:
        """And goes on with the soak, in a new segment; it must have begun one."""
        wait_until(self.segments)
        self._look()
        worker = workers(self.process.pid) if and_worker else []
        self.process.kill()
        for pid in worker:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        before = len(read_json(self.out / "soak.json")["segments"])
        self._start(f"resume={self.out}")
        wait_until(lambda: len(self.segments()) > before)

    def kill_at_random(self, rng: random.Random, *, supervisor: bool) -> None:
        """Every second time only once a request was recorded, so that it is not given up."""
        if rng.random() < 0.5 or len(self.segments()) % 2:
            self.wait_for_completed()
        time.sleep(rng.uniform(0, 0.5))
        if supervisor:
            self.kill_supervisor(and_worker=rng.random() < 0.5)
        else:
            self.kill_worker()

    def stop(self) -> int:
        """Ctrl-C, once; the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(DEADLINE_S)


def check_whole(soak: KilledSoak, kills: int) -> None:
    """What must hold of a soak that was killed so often, after it was stopped by one Ctrl-C."""
    books = read_json(soak.out / "soak.json")
    segments = [Segment(**each) for each in books["segments"]]
    assert books["status"] == "stopped"
    check_drained(soak.out / segments[-1].folder, segments[-1])
    assert books["restarts"] + books["resumed"] == kills == len(segments) - 1
    assert soak.seen <= soak.completed()
    assert soak.seen
    for before, after in itertools.pairwise(segments):
        assert after.start_s == before.end_s  # on one clock, without overlap
    for path in soak.out.rglob("*.parquet"):
        read_part(path)
    assert not list(soak.out.glob("*.partial"))
    rows = 0
    for segment in segments:
        folder = soak.out / segment.folder
        rows += check_segment(folder, segment)
    summary = read_json(soak.out / "summary.json")
    counts = summary["requests"]
    assert counts["completed"] == len(soak.completed())
    assert counts["sent"] == sum(counts.values()) - counts["sent"]
    assert counts["lost"] == sum(segment.lost for segment in segments)
    assert rows == counts["sent"] - counts["lost"]
    assert counts["sent"] == soak.newest_id() + 1  # traffic had no hole
    (run,) = load_runs(soak.out)
    assert run.restarts_s == tuple(segment.start_s for segment in segments[1:])
    assert len(run.requests.read(("request_id",), run.notes)) == rows
    assert run.timeline.read(("time_s",), run.notes)["time_s"].is_monotonic_increasing


def check_drained(folder: Path, segment: Segment) -> None:
    """What ran was finished, so that nothing that was admitted is open."""
    assert (segment.status, segment.cause) == ("incomplete", "stopped by the user")
    assert segment.lost == 0
    rows = pd.concat([read_part(part) for part in folder.glob("requests/*.parquet")])
    assert not (rows["admitted_s"].notna() & (rows["status"] == "unfinished")).any()


def check_segment(folder: Path, segment: Segment) -> int:
    """Requests that were sent have a row or are lost, and rows end when the segment did. Returns
    how many rows there are."""
    parts = [read_part(part) for part in folder.glob("requests/*.parquet")]
    rows = pd.concat(parts) if parts else pd.DataFrame({"end_s": []})
    checkpoint = read_json(folder / "checkpoint.json")
    if checkpoint is None:
        assert rows.empty
        return 0
    assert checkpoint["sent"] == len(rows) + segment.lost
    assert segment.end_s == segment.start_s + checkpoint["simulated_s"]
    assert not (rows["end_s"] > checkpoint["simulated_s"]).any()
    return len(rows)
