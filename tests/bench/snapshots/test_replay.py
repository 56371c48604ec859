"""What was recorded on the virtual GPU comes out the same when it is replayed."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.cli import main
from bench.snapshots.outcome import recorded_reserved
from bench.snapshots.stored import load, load_replay
from tests.bench.snapshots.support import read_in_process
from tests.virtual_gpu import run_on_virtual_gpu, skip_without_virtual_gpu

JOBS = "tests.bench.snapshots.record_jobs"


@pytest.fixture(scope="module", autouse=True)
def _needs_virtual_gpu() -> None:
    skip_without_virtual_gpu()


def recording(folder: Path, conf: str = "", **changes: Any) -> dict[str, Any]:
    gpu = changes.pop("gpu", "rtx4090")
    payload = {"seed": 0, "most_mib": 4096, "unseen": 0, "steps": 400, "max_entries": 100_000,
               "stacks": False, "path": str(folder / "snapshot.pickle")} | changes  # fmt: skip
    found: dict[str, Any] = run_on_virtual_gpu(f"{JOBS}:record", payload, alloc_conf=conf, gpu=gpu)
    return found


def replayed(folder: Path, conf: str = "", *, exactly: bool = True, gpu: str = "rtx4090") -> Any:
    payload = {"history": str(folder / "history.npz"), "out": str(folder / "replay.npz"),
               "exactly": exactly, "memory_fraction": None}  # fmt: skip
    return run_on_virtual_gpu(f"{JOBS}:replay_job", payload, alloc_conf=conf, gpu=gpu)


def read_snapshot(folder: Path) -> dict[str, Any]:
    finished = read_in_process(folder / "snapshot.pickle", folder / "history.npz")
    assert finished.status == "ok", finished.traceback
    return dict(finished.result)


def figures_of(folder: Path) -> list[list[int]]:
    """Bytes allocated and reserved, before the first step and after each."""
    figures = load_replay(folder / "replay.npz").figures
    return np.stack([figures.allocated, figures.reserved], axis=1).tolist()


CONFS = ("", "expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:4")


@pytest.mark.parametrize(
    ("seed", "stacks"),
    [
        pytest.param(1, True, id="1, which empties its cache"),
        *(pytest.param(seed, seed % 2, marks=pytest.mark.long) for seed in (0, *range(2, 10))),
    ],
)
@pytest.mark.parametrize("conf", CONFS)
def test_the_same_settings_give_the_same_bytes_after_every_step(
    conf: str, seed: int, stacks: bool, tmp_path: Path
) -> None:
    recorded = recording(tmp_path, conf, seed=seed, stacks=stacks)
    facts = read_snapshot(tmp_path)
    result = replayed(tmp_path, conf)
    assert facts["alloc_conf"] == conf
    assert figures_of(tmp_path) == recorded["truth"]
    reserved = [reserved for _, reserved in recorded["truth"]]
    assert recorded_reserved(*load(tmp_path / "history.npz")).tolist() == reserved
    assert result["num_ooms"] == recorded["num_ooms"]
    assert result["num_alloc_retries"] == recorded["num_alloc_retries"]


@pytest.mark.parametrize(
    ("recorded_under", "conf"),
    [
        ("", "expandable_segments:True"),
        *(
            pytest.param(one, other, marks=pytest.mark.long)
            for one, other in permutations(CONFS, 2)
            if one
        ),
    ],
)
def test_other_settings_give_the_bytes_that_the_program_has_under_them(
    recorded_under: str, conf: str, tmp_path: Path
) -> None:
    """Of a program that does the same under both: it never runs out of memory."""
    setup = {"gpu": "h200_141gb", "most_mib": 1024}
    recording(tmp_path, recorded_under, **setup)
    read_snapshot(tmp_path)
    replayed(tmp_path, conf, exactly=False, gpu="h200_141gb")
    assert figures_of(tmp_path) == recording(tmp_path, conf, **setup)["truth"]


def test_a_history_that_begins_in_mid_life_is_replayed_from_where_it_began(tmp_path: Path) -> None:
    recorded = recording(tmp_path, unseen=200)
    assert read_snapshot(tmp_path)["blocks_before"] > 0
    replayed(tmp_path)
    assert figures_of(tmp_path) == recorded["truth"]


def test_expandable_segments_are_placed_with_their_holes(tmp_path: Path) -> None:
    conf = "expandable_segments:True"
    recorded = recording(tmp_path, conf, seed=4, unseen=200, stacks=True)
    read_snapshot(tmp_path)
    assert len(load(tmp_path / "history.npz")[0].segments) > 10
    replayed(tmp_path, conf)
    assert figures_of(tmp_path) == recorded["truth"]


def test_a_ring_buffer_that_kept_the_last_events_is_replayed_from_the_first_of_them(
    tmp_path: Path,
) -> None:
    recorded = recording(tmp_path, seed=1, max_entries=300)
    facts = read_snapshot(tmp_path)
    assert facts["events"] == 300
    replayed(tmp_path)
    figures = figures_of(tmp_path)[1:]  # it may begin in the middle of an allocation
    assert figures == recorded["truth"][-len(figures) :]


def test_a_card_that_is_too_small_refuses_and_goes_on(tmp_path: Path) -> None:
    recording(tmp_path, seed=1, most_mib=16_384, steps=200, gpu="a100_80gb")
    read_snapshot(tmp_path)
    larger, smaller = (replayed(tmp_path, gpu=gpu) for gpu in ("a100_80gb", "rtx4090"))
    assert smaller["num_ooms"] > larger["num_ooms"]
    assert smaller["peak_reserved_bytes"] < 24 * 2**30 < larger["peak_reserved_bytes"]
    assert smaller["first_oom_step"] is not None


def test_the_command_says_which_setting_would_have_helped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = recording(tmp_path, seed=1)
    snapshot, out = tmp_path / "snapshot.pickle", tmp_path / "out"
    settings = ["gpu=rtx4090", "alloc_conf=expandable_segments:True", f"out={out}"]
    assert main(["replay", str(snapshot), *settings]) == 0
    found = json.loads((out / "replay.json").read_text())
    assert [each["alloc_conf"] for each in found["replays"]] == ["", "expandable_segments:True"]
    default, expandable = found["replays"]
    assert default["num_ooms"] == recorded["num_ooms"] > expandable["num_ooms"]
    assert default["as_recorded"]["differing"] == 0
    assert found["verdict"].startswith("expandable_segments:True would have helped: ")
    assert capsys.readouterr().out.rstrip().endswith(found["verdict"])
    assert (out / "memory_maps.png").read_bytes()[:4] == b"\x89PNG"
