"""Figures at the sizes that publications print."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bench.exports.command import main
from bench.exports.figures import SHEETS
from bench.report.bars import waste_picture
from bench.report.results import load_runs
from bench.report.sheet import SCREEN, drawn_on, sheet

WriteRun = Callable[..., Path]
LEAST_POINTS = 7.0


def test_each_figure_has_both_widths_in_all_forms(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("1", "contiguous", "chat", requests_per_s=1.0)
    write_run("2", "paged", "chat")
    assert main([str(tmp_path), "to=figures", f"out={tmp_path / 'x'}"]) == 0
    place = tmp_path / "x" / "figures"
    stems = {path.stem for path in place.iterdir()} - {"captions"}
    assert {stem.rpartition("-")[2] for stem in stems} == {"column", "page"}
    assert "waste-chat-column" in stems
    for stem in stems:
        printed = SHEETS[stem.rpartition("-")[2]]
        head = (place / f"{stem}.png").read_bytes()[:24]
        assert struct.unpack(">I", head[16:20])[0] == round(printed.width_in * 300)
        text = (place / f"{stem}.svg").read_text()
        width_pt = re.search(r'<svg [^>]*width="([\d.]+)pt"', text)
        assert width_pt is not None
        assert float(width_pt[1]) == pytest.approx(printed.width_in * 72)
        assert "<text" not in text  # outlines: no font to lack
        assert (place / f"{stem}.pdf").read_bytes().startswith(b"%PDF")
    captions = (place / "captions.md").read_text()
    assert captions.count("\n- ") + 1 == len(stems) / 2
    assert "- waste-chat: chat: shares of the KV budget B" in captions


@pytest.mark.parametrize("name", SHEETS)
def test_no_letter_is_too_small_to_read(name: str, write_run: WriteRun, tmp_path: Path) -> None:
    write_run("1", "contiguous", "chat")
    write_run("2", "paged", "chat", memory_bound=None)
    with drawn_on(replace(SHEETS[name], for_print=False)):  # letters as text
        picture = waste_picture("chat", "chat", load_runs(tmp_path))
    sizes = {
        float(size) for size in re.findall(r"font(?:-size)?: (?:\w+ )*([\d.]+)px", picture.svg)
    }
    assert sizes
    assert min(sizes) >= LEAST_POINTS
    assert picture.pdf is None


def test_a_sheet_holds_only_inside_its_block() -> None:
    with drawn_on(SHEETS["column"]):
        assert sheet() == SHEETS["column"]
    assert sheet() == SCREEN
