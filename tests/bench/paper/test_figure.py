"""Published numbers, rows and the CSV that is kept of them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from bench.paper.fig2 import COMPONENTS, PUBLISHED
from bench.paper.figure import Row, at_most, published
from bench.paper.lengths import drawn_from
from bench.paper.systems import VLLM
from bench.paper.table import COLUMNS, write_csv


@pytest.mark.parametrize(
    ("low", "high", "ours", "difference"),
    [(20.0, None, 18.5, -1.5), (20.0, None, 20.0, 0.0), (6.0, 9.8, 7.0, 0.0),
     (6.0, 9.8, 10.8, 1.0), (6.0, 9.8, 5.0, -1.0)],
)  # fmt: skip
def test_a_difference_is_ours_minus_the_papers_or_0_inside_its_range(
    low: float, high: float | None, ours: float, difference: float
) -> None:
    paper = published("here", low, high)
    assert paper.difference(ours) == pytest.approx(difference)
    row = Row(panel="", system="", quantity="", unit="", ours=ours, paper=paper)
    assert row.difference == pytest.approx(difference)


def test_up_to_a_number_is_no_range_and_only_above_it_is_a_difference() -> None:
    bound = at_most("there", 22.0)
    assert str(bound) == "22"
    assert [bound.difference(ours) for ours in (0.5, 22.0)] == [None, None]
    assert bound.difference(25.0) == pytest.approx(3.0)


def test_a_missing_value_has_no_difference() -> None:
    here = published("here", 3.0)
    assert Row(panel="", system="", quantity="", unit="", ours=None, paper=here).difference is None
    assert Row(panel="", system="", quantity="", unit="", ours=3.0).difference is None


@pytest.mark.parametrize("system", [system for system in PUBLISHED if system is not VLLM])
def test_the_papers_components_of_figure_2_add_up_to_all_memory(system: object) -> None:
    values = [value or 0.0 for value in PUBLISHED[system]]  # type: ignore[index]
    assert len(values) == len(COMPONENTS)
    assert sum(values) == pytest.approx(100, abs=0.15)  # rounded to a tenth each


def test_the_csv_leaves_empty_what_is_undefined_or_not_published(tmp_path: Path) -> None:
    rows = [
        Row(panel="p", system="s", quantity="q", unit="%", ours=1 / 3, x=2.0, x_is="branches",
            paper=published("figure 9", 0.25, 0.3), lengths="l", note="n"),
        Row(panel="p", system="t", quantity="q", unit="%", ours=None, note="failed: why"),
    ]  # fmt: skip
    write_csv(tmp_path / "f.csv", "f", rows, also="short")
    with (tmp_path / "f.csv").open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert tuple(first) == COLUMNS
    assert (first["ours"], first["paper"], first["where"]) == ("0.333333", "0.25-0.3", "figure 9")
    assert float(first["difference"]) == pytest.approx(1 / 3 - 0.3, rel=1e-5)
    assert first["note"] == "n; short"
    assert [second[key] for key in ("x", "ours", "paper", "difference", "where")] == [""] * 5
    assert second["note"] == "failed: why; short"


def test_lengths_are_said_as_they_were_drawn() -> None:
    prompt = {"_target_": "workloads.lengths.fixed.FixedLength", "tokens": 3}
    output = {"_target_": "workloads.lengths.gamma.GammaLengths", "mean_tokens": 1000, "cv": 1,
              "max_tokens": 1000}  # fmt: skip
    drawn = {"workload": {"kinds": {"a": {"prompt": prompt, "output": output}}}}
    # The mean of an exponential distribution cut at its mean m: m (1 - 1/e).
    assert drawn_from(drawn) == (
        "prompt fixed tokens=3; output gamma mean_tokens=1000 cv=1 max_tokens=1000 (mean 632.1)"
    )
    pairs = {"workload": {"kinds": {"a": {"pairs": {"path": "/x/sharegpt.json"}}}}}
    assert drawn_from(pairs) == "pairs of sharegpt.json"
    assert drawn_from({"workload": {"path": "/x/azure.csv"}}) == "trace azure.csv"
