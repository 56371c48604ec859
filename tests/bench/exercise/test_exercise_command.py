"""`fragbench exercise`: wrong input is one sentence and writes nothing; each leaves its files."""

from __future__ import annotations

import json
import pickle
import pickletools
import re
from pathlib import Path
from typing import Any

import pytest
from torch.cuda import _memory_viz

from bench.cli import main
from bench.exercise.registry import EXERCISES
from bench.metrics.trend import Trend
from tests.virtual_gpu import skip_without_virtual_gpu

ROOT = Path(__file__).parents[3]
VIEWER_OPCODES = {
    "APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT",
    "BINUNICODE", "DICT", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1",
    "LONG_BINGET", "LONG_BINPUT", "MARK", "MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "PROTO",
    "SETITEM", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
}  # fmt: skip
"""What `unpickle` in PyTorch's torch/utils/viz/MemoryViz.js, the viewer, understands; of protocols
2 to 4."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["choose one of", "a, b, c, d, e"]),
        (["f"], ["exercise f", "a, b, c, d, e"]),
        (["out=x", "a"], ["letter comes first"]),
        (["a", "--cfg"], ["--cfg", "--help"]),
        (["a", "large_mib=8"], ["large_mib=8", "whole number of MiB from 10", "such as 64"]),
        (["a", "small_mib=2.5"], ["small_mib=2.5", "from 1 to 9"]),
        (["a", "small_mib"], ["small_mib has no value", "small_mib=2"]),
        (["a", "out="], ["out has no value", "results/mine"]),
        (["a", "workload=chat"], ["workload=chat", "of no use to exercise a", "large_mib"]),
        (["a", "device=cpu"], ["device=cpu", "exercise a", "device=cuda"]),
        (["c", "device=cpu"], ["device=cpu", "exercise c", "device=cuda"]),
        (["b", "gpu=a99"], ["gpu=a99", "a100_40gb"]),
        (["b", "repeats=1"], ["repeats=1", "from 3"]),
        (["c", "memory_snapshot=false"], ["memory_snapshot=false", "exercise c", "leave it out"]),
        (["d", "requests=0"], ["requests=0", "from 10"]),
        (["d", "backend=paged"], ["backend=paged", "exercise d", "leave it out"]),
        (["d", "sed=1"], ["'sed'"]),
        (["e", "hours=soon"], ["hours=soon", "number of hours", "such as 2"]),
    ],
)
def test_a_wrong_exercise_is_one_sentence(
    arguments: list[str], parts: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["exercise", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith("fragbench: ")
    assert said.count("\n") == 1
    for part in parts:
        assert part in said
    assert list(folder.iterdir()) == []


def test_help_lists_every_exercise_with_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exercise", "--help"]) == 0
    said = capsys.readouterr().out
    for name, exercise in EXERCISES.items():
        assert re.search(rf"^  {name}  {re.escape(exercise.title)}", said, re.M)
        assert all(f"{key}={number.default:g}" in said for key, number in exercise.own.items())


def test_every_exercise_is_documented_with_all_of_its_settings() -> None:
    page = (ROOT / "docs" / "exercises.md").read_text(encoding="utf-8")
    for name, exercise in EXERCISES.items():
        assert f"fragbench exercise {name}" in page
        assert all(f"`{key}`" in page for key in exercise.own)


def made(folder: Path, name: str, *settings: str) -> Any:
    """The JSON file of an exercise, whose picture is there, too."""
    skip_without_virtual_gpu()
    assert main(["exercise", name, f"out={folder}", *settings]) == 0
    assert (folder / f"exercise_{name}.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((folder / f"exercise_{name}.json").read_text(encoding="utf-8"))
    assert len(found["finding"]) == 2
    return found


def test_a_prints_its_finding_and_torchs_two_numbers(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = made(folder / "a", "a", "gpu=rtx4090", "small_mib=8", "jobs=1")
    said = " ".join(capsys.readouterr().out.split())
    for sentence in found["finding"]:
        assert sentence in said
    assert "Non-releasable memory" in said
    assert found["settings"]["small_mib"] == 8
    assert found["layouts"]["own"]["refusal"] is None
    for layout in ("left", "shared"):
        assert found["layouts"][layout]["refusal"]
        summary = (folder / "a" / f"memory_summary_{layout}.txt").read_text(encoding="utf-8")
        assert "PyTorch CUDA memory summary" in summary


@pytest.mark.long
def test_b_has_costs_of_both_ways_and_says_which_are_modelled(folder: Path) -> None:
    """cudaMalloc: 100 us and 10 us of synchronization. A page: 29 us to create, 2 to map it, and
    38 to set access for all (conf/costs/default.yaml)."""
    found = made(folder / "b", "b", "gpu=rtx4090", "small_mib=8", "repeats=3", "jobs=1")
    default, expandable = (found["costs"][way] for way in ("default", "with"))
    for cost in default:
        assert cost["new"]["modelled_driver_s"] == pytest.approx(110e-6)
    for cost in expandable:
        pages = -(-cost["bytes"] // (20 << 20))
        seconds = (31 * pages + 38) * 1e-6
        assert cost["new"]["modelled_driver_s"] == pytest.approx(seconds)
    assert "modelled" in found["finding"][1]
    assert found["layouts"]["default"]["left"]["refusal"]
    assert found["layouts"]["with"]["left"]["refusal"] is None
    assert "served instead of refused" in found["finding"][0]


def test_c_saves_a_snapshot_that_pytorchs_viewer_opens(folder: Path) -> None:
    found = made(folder / "c", "c", "seconds=3", "model.layers=2")
    path = folder / "c" / "memory_snapshot.pickle"
    data = path.read_bytes()
    opcodes = list(pickletools.genops(data))
    assert opcodes[0][0].name == "PROTO"
    assert opcodes[0][1] == 4
    assert {opcode.name for opcode, _, _ in opcodes} <= VIEWER_OPCODES
    snapshot = pickle.loads(data)
    assert {"segments", "device_traces", "allocator_settings"} <= snapshot.keys()
    assert len(snapshot["device_traces"][0]) >= found["events"] > found["allocations"] > 0
    in_use = sum(segment["active_size"] for segment in snapshot["segments"])
    reserved = sum(segment["total_size"] for segment in snapshot["segments"])
    assert found["free_bytes"] == reserved - in_use
    # Those of torch.cuda._memory_viz that need no network read it as well.
    assert f"\nsegments: {len(snapshot['segments'])}\n" in _memory_viz.segsum(snapshot)
    assert _memory_viz.trace(snapshot).startswith("Device 0 ")
    assert len(_memory_viz.trace_plot(snapshot)) > len(data)
    assert found["peak_requested_bytes"] <= found["peak_reserved_bytes"]
    assert f"opens {path}" in found["finding"][1]


@pytest.mark.long
def test_d_counts_the_same_requests_three_times(folder: Path) -> None:
    found = made(folder / "d", "d", "requests=25", "model.layers=2")
    runs = found["runs"]
    assert runs.keys() == {"growing", "known", "bucketed"}
    for run in runs.values():
        assert run["status"] == "completed"
        assert run["gap_mean_bytes"] <= run["gap_peak_bytes"] <= run["reserved_peak_bytes"]
        assert run["reserved_beyond_allocated_peak_bytes"] >= 0
    assert runs["growing"]["held_waste"] == 0  # it holds what is there, and no more
    assert runs["bucketed"]["held_waste"] > 0
    assert "the last of 25 requests" in found["finding"][0]


@pytest.mark.long
def test_e_says_whether_it_grows_with_an_interval(folder: Path) -> None:
    found = made(folder / "e", "e", "hours=0.06", "sample_interval_s=2")
    for run in found["runs"].values():
        trend = Trend(**run["trend"])
        assert trend.low_mib_per_h <= trend.slope_mib_per_h <= trend.high_mib_per_h
    assert found["finding"][0].count("95 % interval") == 2
