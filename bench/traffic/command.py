"""`fragbench workload NAME`: traffic counted and drawn before it runs (`fit=FILE`: see fit/)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.cells import Cell
from bench.config import Config, from_container
from bench.errors import SettingError
from bench.experiment import NO_ENGINE, compose_cells, make_console, parse_options
from bench.metrics.records import write_json
from bench.packaged import option_names
from bench.plugins import make
from bench.report.drawing import png, style
from bench.report.palette import LIGHT
from bench.traffic.drawing import draw_arrivals, draw_lengths
from bench.traffic.fit import command as fit
from bench.traffic.preview import Preview, preview
from bench.traffic.table import print_preview
from workloads.base import Workload, WorkloadError

NAME = "workload"
UNUSED = (*NO_ENGINE, "++time_scale=1", "++driver.name=inprocess")
"""Nothing runs, so neither a clock is looked for, nor anything else allocated."""

USAGE = """\
usage: fragbench workload NAME [group=option ...] [key=value ...]
       fragbench workload fit=FILE [key=value ...]

A workload before it runs: how many requests at what rate, how long, how much of their prompts was
said before, and how many KV tokens they would keep alive. Nothing is run. Writes workload.json,
lengths.png and arrivals.png to out=DIR, else to a dated folder under results/.

NAME is one of {names}.
Settings are those of `fragbench run --help`; the model, the gpu and max_model_len count too.

  fragbench workload mixed workload.rate_rps=8
  fragbench workload chat model=llama2_13b gpu=h100_80gb seed=1 out=results/chat
  fragbench workload trace workload.path=azure_llm_2023_conv.csv

fit=FILE fits generated traffic to a recorded trace: `fragbench workload fit=FILE --help`."""


def main(argv: list[str]) -> int:
    """`fragbench workload`: 0. Raises SettingError."""
    if any(argument.startswith("fit=") for argument in argv):
        return fit.main(argv)
    asked = parse_options(NAME, argv)
    if asked.help:
        print(USAGE.format(names=", ".join(option_names("workload"))))
        return 0
    cells, folder = _composed(argv)
    if asked.shows:
        return 0
    config, container = from_container(cells[0].config), cells[0].config
    try:
        workload: Workload = make(container["workload"], "workload")
        found = preview(workload, config, container["backend"].get("block_size"))
    except WorkloadError as error:
        raise SettingError(str(error)) from error
    figures = _labels(workload, config, argv) | found.figures
    written = _write(found, figures, folder)
    console = make_console()
    print_preview(figures, console)
    for path in written:
        console.print(f"Wrote {path}", markup=False, highlight=False, soft_wrap=True)
    return 0


def _composed(argv: list[str]) -> tuple[list[Cell], Path]:
    """The one cell, none where Hydra showed something, and the folder for results."""
    if not argv or "=" in argv[0] or argv[0].startswith("-"):
        known = ", ".join(option_names("workload"))
        raise SettingError(f"workload: its name comes first: choose one of {known}.")
    twice = next((word for word in argv[1:] if word.startswith("workload=")), None)
    if twice:
        raise SettingError(f"{twice} comes after workload {argv[0]}: name one workload, first.")
    overrides = [f"workload={argv[0]}", *without_sources(argv[1:]), *UNUSED]
    cells, folder = compose_cells(overrides, ["fragbench", NAME, *argv])
    if len(cells) > 1:
        raise SettingError(f"`fragbench {NAME}` looks at one workload: give one value of each key.")
    return cells, folder


def without_sources(overrides: Sequence[str]) -> list[str]:
    """Overrides but for those of fragmentation sources, which take part in runs only."""
    return [each for each in overrides if not each.startswith(("sources=", "sources."))]


def _labels(workload: Workload, config: Config, argv: list[str]) -> dict[str, Any]:
    return {
        "workload": workload.name,
        "seed": config.seed,
        "model": config.model.name,
        "gpu": config.gpu.name,
        "tensor_parallel": config.tensor_parallel,
        "command": ["fragbench", NAME, *argv],
    }


def _write(found: Preview, figures: dict[str, Any], folder: Path) -> list[Path]:
    """The files of a preview; without arrivals.png where times are the server's doing."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "workload.json"]
    write_json(paths[0], figures)
    name, limit = figures["workload"], figures["limits"]["max_model_len"]
    with style(LIGHT):
        pictures = {"lengths.png": draw_lengths(found.sample, name, limit)}
        if found.sent_s is not None:
            pictures["arrivals.png"] = draw_arrivals(found.sample, found.sent_s, name)
        for file, picture in pictures.items():
            paths.append(folder / file)
            paths[-1].write_bytes(png(picture))
    return paths
