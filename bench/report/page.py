"""Puts the report together and writes it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from bench.report import sections
from bench.report.comparison import comparison_table
from bench.report.deployment import deployment_html
from bench.report.drawing import Picture
from bench.report.figures import latency_picture, throughput_picture, waste_picture
from bench.report.finding import finding
from bench.report.groups import by_workload
from bench.report.results import Run, load_runs
from bench.report.timelines import timeline_pictures


def main(argv: Sequence[str]) -> int:
    """`fragbench report DIR`: writes the report of the runs in DIR and prints what they show.

    Raises SettingError where DIR holds no run.
    """
    parser = argparse.ArgumentParser(
        prog="fragbench report",
        description="Compare the runs in a folder: report.html, comparison.csv and PNG figures.",
    )
    parser.add_argument(
        "directory", metavar="DIR", type=Path, help="a run's folder or one above it"
    )
    directory: Path = parser.parse_args(argv).directory
    runs = load_runs(directory)
    page = _write(directory, runs)
    shown = finding(runs)
    if shown is not None:
        print(shown.headline)
    print(f"Report: {page}")
    return 0


def write_report(directory: Path) -> Path:
    """Writes `report.html`, `comparison.csv` and `figures/*.png` into `directory`, each whole or
    not at all, and returns the page's path.

    Raises SettingError where `directory` holds no run.
    """
    return _write(directory, load_runs(directory))


def _write(directory: Path, found: Sequence[Run]) -> Path:
    runs = [run for group in by_workload(found).values() for run in group]
    waste, latency, throughput = (
        waste_picture(runs), latency_picture(runs), throughput_picture(runs),
    )  # fmt: skip
    over_time = timeline_pictures(runs)
    (directory / "figures").mkdir(exist_ok=True)
    for picture in (waste, latency, throughput, *over_time):
        _replace(directory / "figures" / f"{picture.name}.png", picture.light)
    table = comparison_table(runs).to_csv(index=False, lineterminator="\n")
    _replace(directory / "comparison.csv", table.encode())
    page = directory / "report.html"
    html = _page(directory, runs, waste, latency, throughput, over_time)
    _replace(page, html.encode("utf-8", errors="replace"))
    return page


def _page(
    directory: Path,
    runs: Sequence[Run],
    waste: Picture,
    latency: Picture,
    throughput: Picture,
    over_time: Sequence[Picture],
) -> str:
    resources = files("bench.report")
    template = Template(resources.joinpath("report.html").read_text(encoding="utf-8"))
    picture, tables = sections.picture_html, sections.tables_html
    return template.substitute(
        title=escape(directory.resolve().name),
        css=resources.joinpath("report.css").read_text(encoding="utf-8"),
        finding=sections.finding_html(runs),
        setting=sections.setting_html(runs),
        problems=sections.problems_html(runs),
        comparison=tables(runs, sections.OVERVIEW, picture(waste)),
        waste=tables(runs, sections.WASTE),
        latency=picture(latency) + tables(runs, sections.LATENCY),
        throughput=picture(throughput) + tables(runs, sections.THROUGHPUT),
        over_time=sections.pictures_html(over_time) + tables(runs, sections.ALLOCATOR),
        requests=sections.requests_html(runs),
        incidents=sections.incidents_html(runs),
        deployment=deployment_html(runs),
        details=sections.details_html(runs),
    )


def _replace(path: Path, content: bytes) -> None:
    """Writes a file beside `path` and renames it into place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
