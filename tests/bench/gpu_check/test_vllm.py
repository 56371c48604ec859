"""The real vLLM beside the virtual one: what is alike, what a card takes, what is skipped."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.experiment import compose_cells
from bench.gpu import GIB, MIB
from bench.gpu_check import vllm
from bench.gpu_check.calibration import Calibration, as_yaml, calibrate
from bench.gpu_check.card import REAL, Card
from bench.gpu_check.part import Task
from bench.gpu_check.processes import PartError
from bench.gpu_check.vllm_cells import READ, Case, Cell, read_cell
from bench.gpu_check.vllm_rows import compare_cells, judge
from bench.packaged import load_gpu
from bench.vllm import python

EAGER, GRAPHS, FEW = Case("eager", None), Case("graphs", None), Case("eager", "128MiB")
ALIKE = dict.fromkeys(READ, 1000)
SUMMARY: dict[str, Any] = {
    "status": "completed",
    "cause": None,
    "weights_bytes": 1,
    "activation_peak_bytes": 2,
    "steps": 3,
    "preemptions": 4,
    "requests": {"completed": 5},
    "allocator": {"peak_reserved_bytes": 6},
    "vllm": {
        "version": "0.33.0",
        "num_gpu_blocks": 7,
        "graph_pool_bytes": 8,
        "graphs": 9,
        "card": {
            "total_bytes": 10,
            "before_launch": {"beside_allocator_bytes": 11},
            "first_reading": {"beside_allocator_bytes": 12},
            "started": {"reserved_bytes": 13, "beside_allocator_bytes": 14},
        },
    },
    "vllm_card_at_end": {"reserved_bytes": 0, "beside_allocator_bytes": 15},
}


def cell(**found: int) -> Cell:
    """A completed run, 1,000 of everything but for what is said."""
    return Cell(ALIKE | found, None, "0.33.0")


def eager_on_card() -> Cell:
    """512 MiB of context, 48 of modules before vLLM looks and 124 after it."""
    return cell(
        total_bytes=80 * GIB,
        graphs=0,
        before_launch_beside_bytes=512 * MIB,
        first_reading_beside_bytes=560 * MIB,
        end_beside_bytes=684 * MIB,
    )


# --- what is read ---------------------------------------------------------------------------------


def test_every_quantity_is_read_from_its_own_place() -> None:
    assert sorted(read_cell(SUMMARY).found.values()) == list(range(1, 16))
    assert read_cell(SUMMARY).found["num_gpu_blocks"] == 7
    assert read_cell(SUMMARY).found["end_beside_bytes"] == 15


def test_a_run_that_did_not_end_well_has_a_cause_and_no_readings() -> None:
    assert read_cell({"status": "failed", "cause": "no memory"}) == Cell({}, "no memory", None)


# --- calibration ----------------------------------------------------------------------------------


def test_context_modules_and_graphs_are_told_apart() -> None:
    """The virtual GPU has charged a 32nd of the modules when vLLM first looks: 4 MiB of 128."""
    graphs = cell(graphs=35, end_beside_bytes=(684 + 35 * 3) * MIB)
    found = calibrate({FEW: Cell({}, "died", None), GRAPHS: graphs, EAGER: eager_on_card()})
    assert found == Calibration(80 * GIB, (560 - 4) * MIB, 128 * MIB, 3 * MIB)


def test_a_card_that_took_nothing_more_has_no_modules() -> None:
    taken = dict.fromkeys(("first_reading_beside_bytes", "end_beside_bytes"), 560 * MIB)
    found = calibrate({EAGER: cell(**taken)})
    assert found == Calibration(1000, 560 * MIB, 0, None)


def test_what_was_there_before_vllm_looked_is_never_less_than_nothing() -> None:
    """124 MiB that came after that look are 31 of 32 parts of 128, 4 more than there are."""
    found = calibrate({EAGER: cell(first_reading_beside_bytes=0, end_beside_bytes=124 * MIB)})
    assert found == Calibration(1000, 0, 128 * MIB, None)


def test_memory_that_others_gave_back_meanwhile_makes_no_modules() -> None:
    taken = {"first_reading_beside_bytes": 560 * MIB, "end_beside_bytes": 500 * MIB}
    graphs = cell(graphs=35, end_beside_bytes=400 * MIB)
    found = calibrate({EAGER: cell(**taken), GRAPHS: graphs})
    assert found == Calibration(1000, 500 * MIB, 0, 0)


def test_without_graphs_their_size_is_not_known_and_with_them_alone_nothing_is() -> None:
    found = calibrate({EAGER: eager_on_card(), GRAPHS: Cell({}, "died", None)})
    assert found is not None
    assert "graph_mib" not in found.settings()
    assert "graph_mib" not in found.overrides()[-1]
    assert calibrate({GRAPHS: cell(graphs=35)}) is None


def test_rounded_settings_take_the_pages_that_were_found() -> None:
    """Of every remainder: 1 / 512 GiB is a page, 35 graphs take pages together."""
    card = load_gpu("a100_80gb")
    for pages in range(1, 600):
        found = Calibration(79 * GIB, pages * 2 * MIB, (600 - pages) * 2 * MIB, pages * MIB / 35)
        gpu = replace(card, **found.settings())
        assert gpu.memory_bytes - gpu.usable_bytes == 600 * 2 * MIB
        assert gpu.modules_bytes == (600 - pages) * 2 * MIB
        assert pages * MIB - 35 * 128 < 35 * gpu.graph_bytes <= pages * MIB


def test_the_file_can_be_pasted_into_a_gpu_and_says_where_it_is_from(card: Card) -> None:
    found = Calibration(80 * GIB, 512 * MIB, 128 * MIB, 3 * MIB)
    text = as_yaml(found, card, "0.33.0")
    assert yaml.safe_load(text) == {
        "memory_gib": 80.0, "context_gib": 0.5, "modules_gib": 0.125, "graph_mib": 3.0,
    }  # fmt: skip
    assert "NVIDIA H200" in text
    assert "conf/gpu/h200_141gb.yaml" in text
    assert "gpu.context_gib=0.5 gpu.modules_gib=0.125 gpu.graph_mib=3.0" in text


# --- side by side ---------------------------------------------------------------------------------


def test_differences_are_the_virtual_gpus_less_the_cards() -> None:
    sides = [{EAGER: cell(num_gpu_blocks=blocks)} for blocks in (1000, 1030, 998)]
    rows = compare_cells(*sides)
    assert len(rows) == len(READ)
    (row,) = [row for row in rows if row.quantity == "num_gpu_blocks"]
    assert (row.difference, row.calibrated_difference) == (30, -2)
    assert str(row) == (
        "eager: num_gpu_blocks: card 1,000, virtual 1,030 (+30), calibrated 998 (-2)"
    )
    assert row.share == pytest.approx(0.002)


def test_a_case_that_one_side_has_not_got_is_not_compared_and_fails() -> None:
    card = {EAGER: cell(), GRAPHS: cell()}
    virtual = {EAGER: cell(), GRAPHS: Cell({}, "out of memory", None)}
    rows = compare_cells(card, virtual, {})
    assert {row.case for row in rows} == {EAGER}
    assert {row.calibrated for row in rows} == {None}
    verdict = judge(rows, {"card": card, "virtual": virtual}, 2)
    assert verdict.passed is False
    assert verdict.figures.startswith("1 of 2 cells alike; virtual graphs: out of memory; ")


@pytest.mark.parametrize(
    ("change", "passed"),
    [
        ({"weights_bytes": 2000}, True),  # stated, not judged
        ({"num_gpu_blocks": 981, "peak_reserved_bytes": 1020}, True),  # 1.9 and 1.96 % of 1,000
        ({"num_gpu_blocks": 979}, False),
        ({"started_reserved_bytes": 1021}, False),  # 2.06 % of 1,021
        ({"steps": 1001}, False),
        ({"preemptions": 1001}, False),
        ({"completed": 999}, False),
    ],
)
def test_what_is_scheduled_must_be_the_same_and_memory_near(
    change: dict[str, int], passed: bool
) -> None:
    card = {FEW: cell()}
    rows = compare_cells(card, {FEW: cell(**change)}, {})
    verdict = judge(rows, {"card": card}, 1)
    assert verdict.passed is passed
    for name, value in change.items():
        assert (f"{name}: card 1,000, virtual {value:,}" in verdict.figures) is not passed


def test_memory_is_judged_by_the_calibrated_virtual_gpu_where_it_ran() -> None:
    card, virtual = {EAGER: cell()}, {EAGER: cell(num_gpu_blocks=1100)}
    calibrated = {EAGER: cell(num_gpu_blocks=1001)}
    assert judge(compare_cells(card, virtual, calibrated), {}, 1).passed
    assert not judge(compare_cells(card, virtual, {}), {}, 1).passed


def test_few_blocks_that_preempted_nobody_showed_nothing() -> None:
    sides = {FEW: cell(preemptions=0)}
    assert not judge(compare_cells(sides, sides, {}), {}, 1).passed
    assert judge(compare_cells({EAGER: sides[FEW]}, {EAGER: sides[FEW]}, {}), {}, 1).passed


# --- the part -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA Card of 2030"])
def test_its_settings_compose_and_keep_what_the_card_is(
    card: Card, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = python.VllmPython("python", "0.33.0", None, None)
    monkeypatch.setattr("bench.cells.find_vllm", lambda *_, **__: found)
    asked = [*vllm.TRAFFIC, *vllm.virtual_overrides(replace(card, name=name)), vllm.MODES]
    where = ["--multirun", vllm.BUDGETS, f"out={tmp_path / 'out'}"]
    cells, _ = compose_cells([*where, *asked], [])
    cases = [(c.config["vllm"]["mode"], c.config["kv_budget"]) for c in cells]
    assert set(cases) == {(m, b) for m in ("eager", "graphs") for b in (None, "128MiB")}
    for each in cells:
        gpu = each.config["gpu"]
        assert gpu["device_name"] == name
        assert (gpu["memory_gib"], gpu["compute_capability"]) == (24, "9.0")
        stand_in = "h200_141gb" if name == "NVIDIA H200" else "h100_80gb"
        assert gpu["context_gib"] == load_gpu(stand_in).context_gib


def write_cells(arguments: Sequence[str], cases: Iterable[tuple[str, str | None]]) -> None:
    """Completed runs, where a matrix with these arguments has them."""
    (out,) = (a.removeprefix("out=") for a in arguments if a.startswith("out="))
    for mode, kv_budget in cases:
        folder = Path(out, f"{mode}-{kv_budget}")
        folder.mkdir(parents=True)
        config = {"vllm": {"mode": mode}, "kv_budget": kv_budget}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        (folder / "summary.json").write_text(json.dumps(SUMMARY))


def late_at(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has each matrix run its four cells, but for one side's, of which one is done in time."""

    def run(arguments: Sequence[str], log: Path, limit_s: float, say: object) -> int:
        all_four = [(mode, budget) for mode in ("eager", "graphs") for budget in (None, "128MiB")]
        write_cells(arguments, all_four[:1] if log.stem == f"vllm_{side}" else all_four)
        if log.stem == f"vllm_{side}":
            raise PartError(f"{log.stem} was not done in {limit_s:.0f} s")
        return 0

    monkeypatch.setattr(vllm, "run_fragbench", run)


@pytest.mark.parametrize(
    ("side", "alike", "passed"),
    [("card", 1, False), ("virtual", 1, False), ("calibrated", 4, True)],
)
def test_what_was_done_in_time_is_compared_and_what_was_not_is_missed(
    card: Card, side: str, alike: int, passed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late_at(side, monkeypatch)
    task = Task(tmp_path, card, REAL, REAL, lambda line: None)
    verdict = vllm.compare(task, [], [], (vllm.MODES, vllm.BUDGETS), 100)
    assert verdict.passed is passed
    assert verdict.figures.startswith(f"{alike} of 4 cells alike; ")
    assert f"; vllm_{side} was not done in 100 s; calibration: gpu.memory_gib=" in verdict.figures
    assert (tmp_path / "vllm_gpu.yaml").exists()


def test_the_card_is_calibrated_though_no_time_is_left_for_more(
    card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(arguments: Sequence[str], log: Path, limit_s: float, say: object) -> int:
        write_cells(arguments, [("eager", None), ("graphs", None)])
        time.sleep(limit_s)
        return 0

    monkeypatch.setattr(vllm, "run_fragbench", run)
    task = Task(tmp_path, card, REAL, REAL, lambda line: None)
    verdict = vllm.compare(task, [], [], [vllm.MODES], 0.05)
    assert verdict.passed is False
    assert "0 of 2 cells alike; no time was left for vllm_virtual; " in verdict.figures
    assert yaml.safe_load((tmp_path / "vllm_gpu.yaml").read_text())["modules_gib"] == 0


def test_a_card_that_gave_nothing_cannot_be_checked(
    card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm, "run_fragbench", lambda *_: 2)
    task = Task(tmp_path, card, REAL, REAL, lambda line: None)
    with pytest.raises(PartError, match=r"exit code 2 and no results, see .*vllm_card.log"):
        vllm.compare(task, [], [], [vllm.MODES], 100)
    assert list(tmp_path.iterdir()) == []


def test_without_vllm_it_is_skipped_with_the_reason(
    card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python, "find_spec", lambda name: None)
    monkeypatch.setattr(python, "MADE", Path("no-environment/bin/python"))
    verdict = vllm.check(Task(tmp_path, card, REAL, REAL, print), 100)
    assert verdict.passed is None
    assert "`make vllm-env` makes .venv-vllm" in verdict.figures
    assert list(tmp_path.iterdir()) == []
