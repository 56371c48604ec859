"""`fragbench workload fit=FILE`: a trace read, fitted, and a workload file to run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from bench.config import from_container
from bench.errors import SettingError
from bench.experiment import compose_cells, make_console, parse_options
from bench.metrics.records import write_json
from bench.packaged import option_names
from bench.plugins import make
from bench.report.drawing import png, style
from bench.report.palette import LIGHT
from bench.traffic.fit.drawing import draw_fit
from bench.traffic.fit.result import Result, fit
from bench.traffic.fit.table import print_fit
from bench.traffic.fit.trace import read_trace
from bench.traffic.fit.workload import file_text
from workloads.base import WorkloadError
from workloads.trace import TraceWorkload
from workloads.trace_file import find_trace

OWN = {"fit": "azure_llm_2023_conv.csv", "name": "fitted", "kinds": "8"}
"""Settings of the command itself, with an example of each."""
READING = ("format", "limit", "duration_s", "on_bad_row", "failed_requests", "output_tokens")
"""Settings of workload=trace that may be given without `workload.`."""
NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
MOST_KINDS = 64

USAGE = """\
usage: fragbench workload fit=FILE [key=value ...]

Generated traffic that is like a recorded trace: its mean rate and burstiness, and distributions of
prompts and outputs, each the simplest that is near enough (docs/preview.md). Prints a workload
file and writes it to out=DIR/conf/workload/NAME.yaml, with fit.json and fit.png.

  fragbench workload fit=azure_llm_2023_conv.csv out=results/conv
  fragbench workload fit=burstgpt.csv.gz name=burst kinds=8 on_bad_row=skip

Settings
  fit=FILE     a trace, found and read as `workload=trace` does
  name=fitted  of the workload, and of its file
  kinds=8      parts of the trace, by the length of the prompt, that are fitted by themselves; by
               default the fewest with which prompt + output comes out within 5 %
  out=DIR      folder for the results; a dated one under results/ otherwise
  seed=0       of the requests that are generated to be compared
  {reading}=
               of workload=trace, whose others are workload.KEY="""


class _Asked(NamedTuple):
    path: str
    name: str
    kinds: int | None
    overrides: list[str]


def main(argv: list[str]) -> int:
    """`fragbench workload fit=FILE`: 0. Raises SettingError."""
    if parse_options("workload", argv).help:
        print(USAGE.format(reading="=, ".join(READING)))
        return 0
    asked = _parse(argv)
    cells, folder = compose_cells(asked.overrides, ["fragbench", "workload", *argv])
    if not cells:  # something was shown
        return 0
    if len(cells) > 1:
        raise SettingError("`fragbench workload fit=` fits one trace: give one value of each key.")
    seed = from_container(cells[0].config).seed
    try:
        find_trace("fit", asked.path, folders=True)
        section: dict[str, Any] = cells[0].config["workload"] | {"path": asked.path}
        workload: TraceWorkload = make(section, "workload")
        result = fit(read_trace(workload), asked.name, asked.kinds, seed)
    except WorkloadError as error:
        raise SettingError(str(error)) from error
    console = make_console()
    print_fit(result, console)
    _write(result, asked.name, folder, console)
    return 0


def _parse(argv: Sequence[str]) -> _Asked:
    own, overrides = dict[str, str](), ["workload=trace"]
    for argument in argv:
        key, _, value = argument.partition("=")
        if key == "workload":
            raise SettingError(f"{argument} is not used with fit=, whose workload is the trace.")
        if key == "stop_after_s":
            raise SettingError(f"{argument} is not used with fit=: duration_s= chooses the part.")
        if key in own:
            raise SettingError(f"{key} is given twice ({own[key]}, {value}): give it once.")
        if key not in OWN:
            overrides.append(f"workload.{argument}" if key in READING else argument)
        elif not value:
            raise SettingError(f"{key} has no value: give it one, as in {key}={OWN[key]}.")
        else:
            own[key] = value
    overrides += ["++device=cpu", "++time_scale=1", "++driver.name=inprocess"]
    name = own.get("name", "fitted")
    _check_name(name)
    return _Asked(own["fit"], name, _kinds(own.get("kinds")), overrides)


def _check_name(name: str) -> None:
    taken = option_names("workload")
    if name in taken or not NAME.fullmatch(name):
        raise SettingError(
            f"name={name} cannot name the fitted workload: give small letters, digits and _, and "
            f"none of {', '.join(taken)}, which are there already."
        )


def _kinds(value: str | None) -> int | None:
    if value is None:
        return None
    if value.isdecimal() and 1 <= int(value) <= MOST_KINDS:
        return int(value)
    raise SettingError(
        f"kinds={value} is out of range: give a whole number from 1 to {MOST_KINDS}, such as 8."
    )


def _write(result: Result, name: str, folder: Path, console: Console) -> None:
    """Writes the workload's file, fit.json and fit.png; says how to run the first."""
    text = file_text(result.settings, result.trace)
    file = folder / "conf" / "workload" / f"{name}.yaml"
    numbers, picture = folder / "fit.json", folder / "fit.png"
    with style(LIGHT):
        drawn = png(draw_fit(result))
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    write_json(numbers, result.figures())
    picture.write_bytes(drawn)
    told = f"--config-dir {shlex.quote(str(folder / 'conf'))}"
    rate = "" if result.settings["rate_rps"] is not None else " workload.rate_rps=5"
    for line in (
        "",
        text,
        *(f"Wrote {path}" for path in (file, picture, numbers)),
        f"Next: fragbench workload {name}{rate} {told}",
        f"      fragbench run workload={name}{rate} {told}",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
