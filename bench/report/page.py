"""Puts the report together and writes it."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from bench.errors import SettingError
from bench.report import sections, verdicts
from bench.report.bars import throughput_picture, waste_picture
from bench.report.comparison import comparison_table
from bench.report.deployment import deployment_html
from bench.report.distributions import latency_picture
from bench.report.drawing import Picture
from bench.report.finding import Finding, finding
from bench.report.groups import by_workload, slugs
from bench.report.maps import map_picture
from bench.report.rate_drawing import rates_picture
from bench.report.rates import Slo, Sweep, sweeps
from bench.report.repeats import gathered
from bench.report.results import Run, load_runs
from bench.report.sensitivity import Ranking, rankings, split
from bench.report.timelines import timeline_pictures
from bench.report.vllm import vllm_html

FIGURES = ("waste", "latency", "throughput", "fragmentation_over_time", "waste_over_time",
           "memory_map", "rates")  # fmt: skip
"""What the names of figures begin with, before a dash and the workload."""


@dataclass(frozen=True)
class Contents:
    """What the report says: rows (repeats as one, variants apart), and what follows from them."""

    title: str
    each: Sequence[Run]
    rows: Sequence[Run]
    sweeps: Sequence[Sweep]
    rankings: Mapping[str, Sequence[Ranking]]
    finding: Finding | None


def contents(directory: Path, slo: Slo) -> Contents:
    """What the runs in `directory` show. Raises SettingError where it holds none."""
    each = load_runs(directory)
    base, variants = split(gathered(each))
    rows = [run for group in by_workload(base).values() for run in group]
    found = sweeps(rows, slo)
    return Contents(
        directory.resolve().name, each, rows, found, rankings(rows, variants), finding(rows, found)
    )


def write_report(directory: Path, slo: Slo | None = None) -> tuple[Path, Finding | None]:
    """Writes `report.html`, `comparison.csv` and `figures/` into `directory`, each file whole or
    not at all; returns the page's path and its first sentence.

    Raises SettingError where `directory` holds no run, or cannot be written to.
    """
    shown = contents(directory, slo or Slo())
    page = directory / "report.html"
    table = comparison_table(shown.rows).to_csv(index=False, lineterminator="\n")
    try:
        (directory / "figures").mkdir(exist_ok=True)
        replace_file(directory / "comparison.csv", table.encode())
        drawn = pictures(shown)
        replace_file(page, _page(shown, drawn).encode("utf-8", errors="replace"))
        _write_figures(directory / "figures", [p for group in drawn.values() for p in group])
    except OSError as error:
        raise SettingError(
            f"report: {error.filename2 or error.filename} cannot be written: {error.strerror}; "
            "make room for it, or report on a copy of the folder."
        ) from error
    return page, shown.finding


def _write_figures(folder: Path, drawn: Sequence[Picture]) -> None:
    """Figures as files, and none of an earlier report's; whatever else is there stays."""
    for picture in drawn:
        replace_file(folder / f"{picture.name}.png", picture.png)
        replace_file(folder / f"{picture.name}.svg", picture.svg.encode())
    names = {picture.name for picture in drawn}
    for path in folder.glob("*-*.???"):
        ours = path.suffix in (".png", ".svg") and path.name.partition("-")[0] in FIGURES
        exported = path.with_suffix(".pdf").exists()
        if ours and path.stem not in names and not exported:
            path.unlink()


Pictures = Mapping[tuple[str, str], Sequence[Picture]]
"""Figures by section and workload."""


def pictures(shown: Contents) -> Pictures:
    """All figures of a report, drawn on the current sheet."""
    groups = by_workload(shown.rows)
    names = slugs(groups)
    found: dict[tuple[str, str], Sequence[Picture]] = {}
    for workload, group in groups.items():
        slug = names[workload]
        found["waste", workload] = [waste_picture(workload, slug, group)]
        found["latency", workload] = [latency_picture(workload, slug, group)]
        found["throughput", workload] = [throughput_picture(workload, slug, group)]
        maps = map_picture(workload, slug, group)
        over_time = timeline_pictures(workload, slug, group)
        found["over_time", workload] = [*over_time, maps] if maps else over_time
    for workload in dict.fromkeys(sweep.workload for sweep in shown.sweeps):
        own = [sweep for sweep in shown.sweeps if sweep.workload == workload]
        found["rates", workload] = [
            rates_picture(sweep, names[workload] + (f"-{number}" if number > 1 else ""))
            for number, sweep in enumerate(own, 1)
        ]
    return found


def _page(shown: Contents, drawn: Pictures) -> str:
    resources = files("bench.report")
    template = Template(resources.joinpath("report.html").read_text(encoding="utf-8"))
    script = resources.joinpath("report.js").read_text(encoding="utf-8")
    runs, each = shown.rows, sections.each_workload

    def figure(section: str, workload: str) -> str:
        return "".join(map(sections.picture_html, drawn[section, workload]))

    return template.substitute(
        title=escape(shown.title),
        css=resources.joinpath("report.css").read_text(encoding="utf-8"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        finding=sections.finding_html(shown.finding),
        setting=sections.setting_html(runs),
        problems=sections.problems_html(shown.each),
        filters=sections.filters_html(runs),
        comparison=each(runs, sections.OVERVIEW, lambda w: figure("waste", w), below=True),
        rates=verdicts.rates_html(shown.sweeps, lambda w: figure("rates", w)),
        waste=each(runs, sections.WASTE),
        latency=each(runs, sections.LATENCY, lambda w: figure("latency", w)),
        throughput=each(runs, sections.THROUGHPUT, lambda w: figure("throughput", w)),
        over_time=each(runs, sections.ALLOCATOR, lambda w: figure("over_time", w)),
        hours=verdicts.hours_html(runs),
        requests=sections.requests_html(runs),
        incidents=sections.incidents_html(runs),
        vllm=vllm_html(runs),
        rankings=verdicts.rankings_html(shown.rankings),
        deployment=deployment_html(runs),
        details=sections.details_html(shown.each),
    )


def replace_file(path: Path, content: bytes) -> None:
    """Writes a file beside `path` and renames it into place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
