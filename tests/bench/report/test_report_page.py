"""The report as a whole: one page without a network, and its figures."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from bench.errors import SettingError
from bench.report.bars import waste_parts
from bench.report.command import main
from bench.report.page import write_report
from bench.report.palette import BACKEND_COLOURS, LIGHT, MEMORY_USES, backend_colour
from bench.report.results import load_runs
from bench.report.sheet import SCREEN
from bench.report.tables import run_name

WriteRun = Callable[..., Path]
ADDRESSES = ("src", "href", "srcset", "action", "data", "poster")
VOID = {"meta", "input", "wbr", "br"}


class Page(HTMLParser):
    """A parsed page: its text, the addresses it names, and whether its tags nest."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ADDRESSES]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data


def png_size(content: bytes) -> tuple[int, int]:
    """Width and height from a PNG's header."""
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def test_the_report_writes_page_table_and_figures(matrix: Path) -> None:
    assert len(pd.read_csv(matrix / "comparison.csv")) == 4
    assert sorted(path.name for path in (matrix / "figures").iterdir()) == [
        f"{figure}-{workload}.{ending}"
        for figure in (
            "fragmentation_over_time",
            "latency",
            "throughput",
            "waste",
            "waste_over_time",
        )
        for workload in ("a-b-script-alert-1-script-x", "chat")
        for ending in ("png", "svg")
    ]
    assert not list(matrix.rglob("*.tmp"))


def test_figures_are_as_wide_as_the_report(matrix: Path) -> None:
    for path in (matrix / "figures").glob("*.png"):
        width, height = png_size(path.read_bytes())
        assert width == round(SCREEN.width_in * SCREEN.dpi)
        assert height > 200


def test_the_page_needs_no_network_and_holds_every_figure(matrix: Path) -> None:
    page = Page(matrix / "report.html")
    assert [address for address in page.addresses if not address.startswith("#")] == []
    assert not {"img", "link", "iframe", "object"} & set(page.tags)
    text = (matrix / "report.html").read_text(encoding="utf-8")
    assert text.count("<svg ") == len(list((matrix / "figures").glob("*.svg")))
    assert text.count("<script>") == 1
    assert LIGHT.paper.lower() not in text[text.index("<main>") :]  # the page's own colours


def test_the_pages_script_is_the_one_that_its_policy_allows(matrix: Path) -> None:
    text = (matrix / "report.html").read_text(encoding="utf-8")
    script = text[text.index("<script>") + 8 : text.index("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text


def test_names_and_causes_are_escaped(matrix: Path) -> None:
    page = Page(matrix / "report.html")
    assert "workload a/b <script>alert(1)</script> $x" in page.text
    assert "failed: <b>&" in page.text


def test_runs_that_did_not_complete_are_listed_with_causes(matrix: Path) -> None:
    text = Page(matrix / "report.html").text
    assert "2 of 4 runs did not complete" in text
    assert "incomplete: the run ended before it wrote summary.json" in text
    assert "timeline/part-00001.parquet is cut short and was left out" in text
    assert "never memory-bound" in text
    assert "Times are modelled" in text


def test_the_page_is_the_same_every_time_and_figures_of_earlier_reports_go(matrix: Path) -> None:
    first = (matrix / "report.html").read_bytes()
    names = {path.name for path in (matrix / "figures").iterdir()}
    strangers = {"mine-chat.svg", "waste-chat-page.svg", "waste-chat-page.pdf"}
    for name in {"waste-earlier.svg", "waste_over_time-earlier.png"} | strangers:
        (matrix / "figures" / name).touch()
    page, _ = write_report(matrix)
    assert page == matrix / "report.html"
    assert page.read_bytes() == first
    assert {path.name for path in (matrix / "figures").iterdir()} == names | strangers


def test_a_folder_that_cannot_be_written_to_is_one_sentence(write_run: WriteRun) -> None:
    folder = write_run("run")
    (folder / "figures").touch()
    with pytest.raises(SettingError, match=r"report: .*figures cannot be written: File exists"):
        write_report(folder)
    assert not (folder / "report.html").exists()


def test_one_run_alone_is_reported_without_a_comparison(
    write_run: WriteRun, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_run("run")
    assert main([str(folder)]) == 0
    assert capsys.readouterr().out == f"Report: {folder / 'report.html'}\n"
    page = Page(folder / "report.html")
    assert "nothing is compared" in page.text
    assert "best among" not in page.text


def test_requests_that_do_not_add_up_are_pointed_out(write_run: WriteRun) -> None:
    counts = {"sent": 100, "completed": 90, "failed": 4, "cancelled": 0, "rejected": 0}
    text = Page(write_report(write_run("run", requests=counts | {"unfinished": 4}))[0]).text
    assert "off by +2" in text
    assert "failed: out of memory (1)" in text


def test_a_run_without_any_files_but_its_config_is_reported(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("backend: paged\nworkload: mixed\n")
    assert "no summary.json" in Page(write_report(tmp_path)[0]).text


def test_a_run_without_allocator_statistics_is_reported(write_run: WriteRun) -> None:
    folder = write_run("run", device="cpu", time="measured", allocator=None)
    for part in (folder / "timeline").iterdir():
        frame = pd.read_parquet(part)
        frame[["reserved_bytes", "allocated_bytes"]] = None
        frame.to_parquet(part)
    text = Page(write_report(folder)[0]).text
    assert "no allocator statistics with device=cpu" in text
    assert "Times are measured." in text


def test_a_stacked_bar_adds_up_to_one(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("a")
    write_run("b", memory_bound=None)
    bound, unbound = map(waste_parts, load_runs(tmp_path))
    assert bound is not None
    assert sum(bound) == 1.0
    assert len(bound) == len(MEMORY_USES)
    assert unbound is None


def test_a_colour_means_the_same_backend_everywhere(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("a", "my_backend", "chat")
    write_run("b", "my_backend", "code")
    swatches = {run_name(run, run.backend) for run in load_runs(tmp_path)}
    assert len(swatches) == 1
    assert backend_colour("my_backend") in swatches.pop()
    assert backend_colour("paged") == BACKEND_COLOURS["paged"]


def test_colours_are_distinct() -> None:
    colours = [*BACKEND_COLOURS.values(), *(use.colour for use in MEMORY_USES)]
    assert len(set(colours)) == len(colours)


def test_the_command_refuses_a_folder_without_runs(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="holds no run"):
        main([str(tmp_path)])
    assert list(tmp_path.iterdir()) == []
