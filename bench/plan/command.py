"""`fragbench plan`: deployment questions answered with numbers before a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.cells import Cell
from bench.config import from_container
from bench.device.build import check_virtual_gpu
from bench.errors import SettingError
from bench.experiment import compose_cells, make_console, parse_options
from bench.labels import labels
from bench.metrics.records import write_json
from bench.plan import answers
from bench.plan.case import Case
from bench.plan.division import CONFIGURED, Division, bounded, divide_exactly
from bench.plan.page import as_markdown, print_page
from bench.plan.sections import sections
from bench.plan.warnings import warnings
from bench.plugins import make
from bench.setting_files import hidden
from bench.traffic.preview import preview
from workloads.base import Workload, WorkloadError

NAME = "plan"
UNUSED = ("++time_scale=1", "++driver.name=inprocess")
"""Nothing is served."""
TRAFFIC = ("turns", "sessions", "whole", "users", "rates", "lengths", "limits", "prefix", "live")
"""What plan.json has of the preview's figures."""

USAGE = """\
usage: fragbench plan [group=option ...] [key=value ...]

Questions of a deployment, answered before anything runs: KV bytes a token, how many live tokens
fit, contiguous or blocks, requests near the limit, headroom, an admission limit, what FP8 KV,
a shorter max_model_len, smaller weights and an endpoint for each kind of traffic would buy.
The card is divided by the virtual GPU as a run would divide it; the workload's lengths are drawn.
Prints a page and writes it as plan.json and plan.md to out=DIR, else to a dated folder under
results/.

Settings are those of `fragbench run --help`.

  fragbench plan model=llama2_13b gpu=a100_40gb workload=chat
  fragbench plan model=llama3_8b gpu=rtx4090 weight_dtype=int4 workload=mixed workload.rate_rps=8
  fragbench plan experiment=classic_13b_24gb
  fragbench plan workload=trace workload.path=azure_llm_2023_conv.csv out=results/plan"""

DIVIDES_ITSELF = (
    f"engine=vllm divides the card by itself when it starts, and `fragbench {NAME}` as fragbench's "
    "own engine does: leave it out, or make a short run with it, whose summary.json has "
    "vllm.num_gpu_blocks."
)


def main(argv: list[str]) -> int:
    """`fragbench plan`: 0. Raises SettingError."""
    asked = parse_options(NAME, argv)
    if asked.help:
        print(USAGE)
        return 0
    if "engine=vllm" in argv:  # before it is looked for
        raise SettingError(DIVIDES_ITSELF)
    _check_device(argv)
    has_virtual_gpu = _has_virtual_gpu()
    cells, folder = _composed(argv, "virtual" if has_virtual_gpu else "cpu")
    if asked.shows:
        return 0
    if cells[0].config["engine"]["name"] == "vllm":
        raise SettingError(DIVIDES_ITSELF)
    console = make_console()
    case = _case(cells[0])
    divisions = _divisions(case, has_virtual_gpu, console)
    plan = _labels(cells[0], argv) | answer(case, divisions)
    _write(plan, folder, console)
    return 0


def answer(case: Case, divisions: Mapping[str, Division]) -> dict[str, Any]:
    """What plan.json has of a case."""
    configured = divisions[CONFIGURED]
    served = case.served(case.config.max_model_len)
    plan = {
        "traffic": {key: case.traffic[key] for key in TRAFFIC},
        "longest_tokens": int(served.total_tokens.max()) if served.requests else None,
        "kv": answers.kv(case),
        "budget": answers.budget(configured),
        "together": answers.together(case, configured),
        "layouts": answers.layouts(case, configured),
        "limits": answers.limits(case, configured),
        "headroom": answers.headroom(divisions),
        "admission": answers.admission_limit(case, configured),
        "gains": answers.gains(case, divisions),
        "weights": answers.weights(case, divisions),
        "parts": answers.parts(case, divisions),
    }
    return plan | {"warnings": warnings(plan)}


def _check_device(argv: list[str]) -> None:
    for argument in argv:
        key, _, value = argument.lstrip("+").partition("=")
        if key == "device" and value not in ("auto", "virtual"):
            raise SettingError(
                f"device={value} is not used by `fragbench {NAME}`, which divides the card of "
                "gpu= on the virtual GPU: leave it out."
            )


def _has_virtual_gpu() -> bool:
    try:
        check_virtual_gpu()
    except SettingError:
        return False
    return True


def _composed(argv: list[str], device: str) -> tuple[list[Cell], Path]:
    """The one cell, none where Hydra showed something, and the folder for results."""
    overrides = [*argv, *UNUSED, f"++device={device}"]
    cells, folder = compose_cells(overrides, ["fragbench", NAME, *argv])
    if len(cells) > 1:
        raise SettingError(f"`fragbench {NAME}` plans one setup: give one value of each key.")
    return cells, folder


def _case(cell: Cell) -> Case:
    config, container = from_container(cell.config), cell.config
    for setting in ("kv_dtype", "weight_dtype"):
        if getattr(config, setting) == "fp32":
            raise SettingError(
                f"{setting}=fp32 is not planned for: GPUs serve at 16 bits or less; choose fp16, "
                "bf16 or fp8."
            )
    try:
        workload: Workload = make(container["workload"], "workload")
        found = preview(workload, config, container["backend"].get("block_size"))
    except WorkloadError as error:
        raise SettingError(str(error)) from error
    return Case(container, config, found.sample, found.figures)


def _divisions(case: Case, has_virtual_gpu: bool, console: Console) -> dict[str, Division]:
    variants = case.variants()
    if has_virtual_gpu:
        at_once = case.config.jobs or os.cpu_count()
        return divide_exactly(variants, at_once, console)
    return {name: bounded(from_container(container)) for name, container in variants.items()}


def _labels(cell: Cell, argv: list[str]) -> dict[str, Any]:
    """What was planned for, by the names that a run of it would have."""
    found = labels(cell.config, "virtual")
    keys = ("backend", "workload", "model", "gpu", "seed")
    config = cell.config
    return {
        **{key: found[key] for key in keys},
        "kv_dtype": config["kv_dtype"],
        "weight_dtype": config["weight_dtype"],
        "tensor_parallel": config["tensor_parallel"],
        "utilization": config["utilization"],
        "kv_budget": config["kv_budget"],
        "command": ["fragbench", NAME, *map(hidden, argv)],
    }


def _write(plan: dict[str, Any], folder: Path, console: Console) -> None:
    """The page on the terminal and both files."""
    page = sections(plan)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "plan.json", plan)
    (folder / "plan.md").write_text(as_markdown(page), encoding="utf-8")
    print_page(page, console)
    for name in ("plan.json", "plan.md"):
        line = f"Wrote {folder / name}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
