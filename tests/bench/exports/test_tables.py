"""The overview as Markdown and as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.exports import latex, markdown
from bench.exports.table import TextTable, estimate_said, overview_tables
from bench.report import quantities as q
from bench.report.results import load_runs
from bench.report.statistics import Estimate

WriteRun = Callable[..., Path]


@pytest.fixture
def table(write_run: WriteRun, tmp_path: Path) -> TextTable:
    """`contiguous` at half of the throughput of `my_paged|50%`, which never was memory-bound."""
    write_run("1", "contiguous", "chat_a", requests_per_s=1.0)
    write_run("2", "my_paged|50%", "chat_a", requests_per_s=2.0, memory_bound=None)
    write_run("3", "vmm", "chat_a", status="failed", cause="out of memory")
    (found,) = overview_tables(load_runs(tmp_path))
    return found


@pytest.mark.parametrize(
    ("estimate", "said"),
    [
        (Estimate(1.314, 1), "1.31"),
        (Estimate(1.314, 5, 1.294, 1.334), "1.31 ± 0.02"),
        (Estimate(1.314, 5, 1.304, 1.354), "1.31 (1.30 to 1.35)"),
        (Estimate(1234.4, 5, 1200.0, 1300.0), "1,234 (1,200 to 1,300)"),
    ],
)
def test_an_interval_has_the_digits_of_its_value(estimate: Estimate, said: str) -> None:
    assert estimate_said(q.REQUESTS_PER_S, estimate) == said


def test_the_interval_is_in_the_unit_that_people_read() -> None:
    assert estimate_said(q.TPOT["p50"], Estimate(0.020, 5, 0.019, 0.021)) == "20.0 ± 1.0"


def test_rows_of_markdown_have_all_cells_and_the_best_is_bold(table: TextTable) -> None:
    text = markdown.markdown_table(table)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert [len(re.findall(r"(?<!\\)\|", row)) for row in rows] == [11] * 5
    assert r"| my\_paged\|50% | 100 | **2.00** |" in text
    assert "| contiguous | 100 | 1.00 |" in text
    assert "| vmm (failed) |" in text
    assert "–<sup>1</sup>" in text
    assert "<sup>1</sup> never memory-bound" in text
    assert r"**chat\_a: llama3\_8b, a100\_80gb, virtual, modelled times**" in text


def test_rows_of_latex_have_all_cells_and_environments_end(table: TextTable) -> None:
    text = latex.latex_table(table, "chat_a")
    begun, ended = (re.findall(rf"\\{word}{{([^}}]*)}}", text) for word in ("begin", "end"))
    assert begun == ended[::-1] == ["table*", "tabular"]
    body = text[text.index("\\toprule") : text.index("\\bottomrule")]
    rows = [line for line in body.splitlines() if line.endswith("\\\\")]
    assert [len(re.findall(r"(?<!\\)&", row)) for row in rows] == [9] * 5
    assert r"my\_paged|50\% & 100 & \textbf{2.00} &" in text
    assert r"--$^{1}$" in text
    assert r"$^{1}$ never memory-bound." in text


@given(st.text(max_size=40))
def test_no_letter_is_left_to_latex_as_a_command(text: str) -> None:
    rest = latex.escaped(text)
    for known in latex._ESCAPES.values():
        rest = rest.replace(known, "")
    assert not set(rest) & set("\\&%$#_{}~^<>")
    assert "\n" not in rest


@given(st.text(max_size=40))
def test_a_markdown_cell_stays_a_cell(text: str) -> None:
    shown = markdown.escaped(text)
    assert not re.search(r"(?<!\\)[|*_<`]", shown.replace("\\\\", ""))
    assert len(shown.splitlines()) <= 1
