"""Memory maps in the report: of runs that kept a snapshot, and of nothing that would do harm."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

from bench.report.maps import map_picture
from bench.report.page import write_report
from bench.report.results import load_runs
from tests.bench.snapshots.support import block, event, segment, write

WriteRun = Callable[..., Path]


class Touch:
    """Unpickled freely, it would make a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self._path,))


def test_a_run_with_a_snapshot_has_its_map(write_run: WriteRun, tmp_path: Path) -> None:
    trace = [event("segment_alloc", 0, 20), event("alloc", 0, 5), event("alloc", 5, 5)]
    held = {"device_traces": [trace], "segments": [segment(0, 20, block(0, 5), block(5, 5))]}
    write(write_run("a", "paged") / "memory_snapshot.pickle", held)
    write_run("b", "contiguous")
    page, _ = write_report(tmp_path)
    assert (tmp_path / "figures" / "memory_map-mixed.svg").exists()
    assert 'aria-label="Memory maps of paged"' in page.read_text(encoding="utf-8")


def test_a_snapshot_that_is_none_is_noted_and_does_nothing(
    write_run: WriteRun, tmp_path: Path
) -> None:
    harmed = tmp_path / "harmed"
    snapshot = write_run("a") / "memory_snapshot.pickle"
    snapshot.write_bytes(pickle.dumps({"segments": [Touch(harmed)]}))
    runs = load_runs(tmp_path)
    assert map_picture("mixed", "mixed", runs) is None
    assert not harmed.exists()
    assert runs[0].notes == ["memory_snapshot.pickle could not be read"]
