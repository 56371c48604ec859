"""The figure of fragmentation sources: what it runs, what it ranks, and what is kept of it."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from bench.cli import main
from bench.experiment import compose_cells
from bench.paper import sources_cases as cases
from bench.paper.lengths import mean_after_clip
from bench.paper.sources import _added, _note, _ranks
from bench.paper.sources_cases import CASES, SETTINGS
from bench.report.results import Run, load_runs
from tests.bench.report.conftest import GIB, run_writer, timeline, write_parts
from tests.bench.sources.support import NAMES
from tests.virtual_gpu import skip_without_virtual_gpu

REFERENCE = Path(__file__).parents[3] / "results" / "reference" / "sources.csv"


def read(path: Path) -> dict[tuple[str, str, str], dict[str, str]]:
    """Rows by allocator setting, case and quantity."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {(row["panel"], row["system"], row["quantity"]): row for row in rows}


def test_every_source_there_is_has_a_case_and_every_case_a_reference() -> None:
    switched_on = {o for case in CASES for o in case.overrides if o.startswith("sources=")}
    assert switched_on == {f"sources={name}" for name in NAMES}
    keys = {case.key for case in CASES}
    assert {case.reference for case in CASES if case.reference} <= keys
    assert all(case.reference for case in CASES if case.folklore)


def test_fixed_lengths_are_the_means_of_the_variable_ones() -> None:
    (cell,), _ = compose_cells([*cases.TRAFFIC, "device=virtual"], [])
    kinds = cell.config["workload"]["kinds"].values()
    for part, tokens in cases.MEAN_TOKENS.items():
        mean = sum(kind["share"] * mean_after_clip(kind[part]) for kind in kinds)
        assert tokens == round(mean)


def test_ranks_begin_with_what_adds_most_and_leave_out_what_is_unknown() -> None:
    assert _ranks({"a": 0.1, "b": 3.0, "c": None, "d": -1.0}) == {"b": 1, "a": 2, "d": 3}


def _run_with(folder: Path, reserved_gib: list[float], **replaced: object) -> Run:
    """A run of a sample a second, and 20 GiB allocated at each of them."""
    path = run_writer(folder)("it", **replaced)
    shutil.rmtree(path / "timeline")
    samples = timeline(len(reserved_gib))
    samples["reserved_bytes"] = [gib * GIB for gib in reserved_gib]
    write_parts(path / "timeline", samples)
    (run,) = load_runs(folder)
    return run


def _peaks(reserved_gib: int, allocated_gib: int) -> dict[str, int]:
    return {"peak_reserved_bytes": reserved_gib * GIB, "peak_allocated_bytes": allocated_gib * GIB}


def test_what_a_case_adds_is_read_off_peaks_or_up_to_where_one_of_the_two_died(
    tmp_path: Path,
) -> None:
    """Peaks are 30 - 25 and 24 - 22. In the first two seconds the reference had reserved 23 of its
    24 GiB: 28 - 20 of samples beside 23 - 20."""
    case = next(case for case in CASES if case.key == "beams")
    base = _run_with(tmp_path / "base", [22, 23, 23, 24, 24], allocator=_peaks(24, 22))
    done = _run_with(tmp_path / "done", [21, 24, 28], allocator=_peaks(30, 25))
    dead = _run_with(tmp_path / "dead", [21, 24, 28], allocator=_peaks(30, 25), status="failed")
    assert _added(done, base) == 3
    assert "samples" not in _note(case, done, base)
    assert _added(dead, base) == 5
    assert "added: by samples of the first 2 s of both" in _note(case, dead, base)
    assert _added(dead, None) is None


@pytest.mark.long
def test_the_figure_measures_each_case_under_both_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without_virtual_gpu()
    monkeypatch.chdir(tmp_path)
    short = ["workload.duration_s=4", "out=here", "jobs=1"]
    assert main(["figure", "sources", *short]) == 0
    assert (tmp_path / "here" / "sources.png").stat().st_size > 10_000
    rows = read(tmp_path / "here" / "sources.csv")
    for setting in SETTINGS:
        ranks = set()
        for case in CASES:
            mine = {
                key[2]: row for key, row in rows.items() if key[:2] == (setting.panel, case.label)
            }
            assert float(mine[cases.MEAN]["ours"]) <= float(mine[cases.PEAK]["ours"])
            assert float(mine[cases.CALLS]["ours"]) > 0
            assert (cases.HELD in mine) == (case.key in NAMES)
            assert (cases.RANK in mine) == (case.folklore is not None)
            if case.folklore:
                ranks.add(int(mine[cases.RANK]["ours"]))
                assert f"folklore: {case.folklore}" in mine[cases.RANK]["note"]
        assert ranks == set(range(1, len(ranks) + 1))


def test_what_is_kept_ranks_copied_beams_and_a_growing_cache_first() -> None:
    """What docs/sources.md says of it, and that expandable segments lower every peak."""
    rows = read(REFERENCE)
    default, expandable = (setting.panel for setting in SETTINGS)
    first = {"beam fork and free", "growing KV, the only cache"}
    for panel in (default, expandable):
        by_rank = {
            int(row["ours"]): key[1] for key, row in rows.items() if key[::2] == (panel, cases.RANK)
        }
        assert {by_rank[1], by_rank[2]} == first
        assert by_rank[len(by_rank)] == "variable lengths"
    for case in CASES:
        peaks = [float(rows[p, case.label, cases.PEAKS]["ours"]) for p in (default, expandable)]
        assert peaks[1] < peaks[0], case.label
