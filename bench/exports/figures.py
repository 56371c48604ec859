"""The report's figures at the sizes that publications print: SVG, PDF and PNG."""

from __future__ import annotations

from pathlib import Path

from bench.exports.markdown import escaped
from bench.report.drawing import Picture
from bench.report.page import Contents, pictures, replace_file
from bench.report.sheet import Sheet, drawn_on

SHEETS = {
    "column": Sheet(width_in=3.3, dpi=300, points=7.5, panels=1, for_print=True),
    "page": Sheet(width_in=7.0, dpi=300, points=8.0, panels=3, for_print=True),
}
"""A column of a paper in two columns, and both of them, by what they add to a file's name."""


def write_figures(shown: Contents, folder: Path) -> list[Path]:
    """Each figure on each sheet in figures/, and figures/captions.md."""
    place = folder / "figures"
    place.mkdir(exist_ok=True)
    paths, captions = [], dict[str, str]()
    for name, sheet in SHEETS.items():
        with drawn_on(sheet):
            for picture in (each for group in pictures(shown).values() for each in group):
                paths += _write(picture, place / f"{picture.name}-{name}")
                captions[picture.name] = picture.caption
    text = "".join(f"- {escaped(name)}: {escaped(said)}\n" for name, said in captions.items())
    replace_file(place / "captions.md", text.encode())
    return [*paths, place / "captions.md"]


def _write(picture: Picture, stem: Path) -> list[Path]:
    assert picture.pdf is not None
    forms = {".svg": picture.svg.encode(), ".pdf": picture.pdf, ".png": picture.png}
    paths = {stem.with_name(stem.name + ending): form for ending, form in forms.items()}
    for path, form in paths.items():
        replace_file(path, form)
    return list(paths)
