"""`fragbench figure NAME`: a published figure made again, as runs, a CSV and a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.cells import INTERRUPTED
from bench.errors import SettingError
from bench.experiment import compose_cells, make_console
from bench.paper.figure import PaperFigure, Row
from bench.paper.registry import FIGURES
from bench.paper.table import terminal_table, write_csv
from bench.paper.task import Stopped, Task
from bench.report.drawing import png, style
from bench.report.palette import LIGHT

VARIED = ("backend", "workload", "workload.rate_rps", "name")
"""Settings that tell a figure's runs apart."""
OWN = {"out": "out=results/mine", "path": "path=lengths.csv", "quick": "quick=true"}
"""Settings of the command itself, and how each is given."""
SHORTENED = "quick=true: runs were shortened, so numbers differ"

_HELP = """\
usage: fragbench figure NAME [out=DIR] [path=FILE] [quick=true] [key=value ...]

Figures of PagedAttention (Kwon et al., SOSP 2023), made again beside the published numbers:
{figures}

Settings
  out=DIR      folder for the PNG, the CSV and the runs; a dated one under results/ otherwise
  path=FILE    lengths or a trace, where the list above names what it stands in for
  quick=true   short runs, for a look: the CSV says so
  key=value    any setting of `fragbench run`, for all runs of the figure: seed=1 jobs=2
               costs=default (these figures take costs=sosp23, docs/costs.md)"""


class _Asked(NamedTuple):
    figure: PaperFigure
    out: str | None
    path: str | None
    quick: bool
    overrides: list[str]


def main(argv: list[str]) -> int:
    """`fragbench figure`: its exit code. Raises SettingError."""
    if any(argument in ("-h", "--help") for argument in argv):
        print(_help())
        return 0
    asked = _parse(argv)
    command = ["fragbench", "figure", *argv]
    _, folder = compose_cells([f"out={asked.out}"] if asked.out else [], command)
    console = make_console()
    task = Task(folder, console, command, asked.overrides, asked.path, asked.quick)
    try:
        rows = asked.figure.rows(task)
    except Stopped:
        return INTERRUPTED
    _write(asked.figure, rows, task)
    return task.exit_code


def _write(figure: PaperFigure, rows: Sequence[Row], task: Task) -> None:
    table, picture = (task.folder / f"{figure.name}.{kind}" for kind in ("csv", "png"))
    write_csv(table, figure.name, rows, SHORTENED if task.quick else "")
    with style(LIGHT):
        picture.write_bytes(png(figure.draw(rows)))
    task.console.print(terminal_table(f"{figure.name}: {figure.title}", rows))
    if task.quick:
        task.console.print(SHORTENED, style="yellow", highlight=False)
    for path in (picture, table):
        task.console.print(f"Wrote {path}", markup=False, highlight=False, soft_wrap=True)


def _parse(argv: list[str]) -> _Asked:
    known = ", ".join(FIGURES)
    if not argv or "=" in argv[0] or argv[0].startswith("-"):
        raise SettingError(f"figure: its name comes first: choose one of {known}.")
    if argv[0] not in FIGURES:
        raise SettingError(f"figure {argv[0]} is unknown: choose one of {known}.")
    figure, given = FIGURES[argv[0]], argv[1:]
    option = next((argument for argument in given if argument.startswith("-")), None)
    if option:
        raise SettingError(f"figure: {option} is no option here: only --help is.")
    _check_settings(figure, given)
    own = {key: _last(given, key) for key in OWN}
    overrides = [a for a in given if a.partition("=")[0] not in own]
    return _Asked(figure, own["out"], _path(figure, own["path"]), _quick(own["quick"]), overrides)


def _check_settings(figure: PaperFigure, given: Sequence[str]) -> None:
    for argument in given:
        key = argument.lstrip("+~").partition("=")[0]
        if argument in OWN:
            raise SettingError(f"{argument} has no value: give it one, as in {OWN[argument]}.")
        if key in VARIED:
            raise SettingError(
                f"{argument} is what figure {figure.name} varies itself: leave it out."
            )
        if key == "stop_after_s":
            raise SettingError(
                f"{argument} would cut the runs of a figure, whose numbers are of requests served "
                "to the end: leave it out; quick=true makes runs short."
            )


def _last(given: Sequence[str], key: str) -> str | None:
    values = [value for name, _, value in (a.partition("=") for a in given) if name == key]
    return values[-1] if values else None


def _path(figure: PaperFigure, value: str | None) -> str | None:
    if value is None:
        return None
    if figure.files is None:
        raise SettingError(
            f"path={value} is of no use to figure {figure.name}, which reads no file: leave it out."
        )
    path = Path(value).expanduser()
    if not path.is_file():
        raise SettingError(
            f"path={value} is no file: give one that holds {figure.files} (docs/figures.md)."
        )
    return str(path.absolute())


def _quick(value: str | None) -> bool:
    if value not in (None, "true", "false"):
        raise SettingError(f"quick={value} must be true or false.")
    return value == "true"


def _help() -> str:
    width = max(map(len, FIGURES))
    lines = []
    for name, figure in FIGURES.items():
        path = f" (path= {figure.files})" if figure.files else ""
        lines.append(f"  {name:{width}}  {figure.title}{path}")
    return _HELP.format(figures="\n".join(lines))
