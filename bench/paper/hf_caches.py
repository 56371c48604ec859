"""Hugging Face's caches beside our `contiguous` on the same batches. No figure of the paper."""

from __future__ import annotations

import copy
import csv
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure as Drawing

from bench.config import Config, from_container
from bench.device.launcher import Job
from bench.device.virtual import allocator_environment, gpu_environment
from bench.errors import SettingError
from bench.experiment import compose_cells
from bench.paper.figure import Row
from bench.paper.hf_differences import difference_rows, read_steps, same_steps
from bench.paper.hf_drawing import (
    CONCATENATED,
    CONTIGUOUS,
    HUGGING_FACE,
    WHOLE_BATCH,
    curves,
    draw,
)
from bench.paper.jobs import run_all
from bench.paper.lengths import drawn_from
from bench.paper.task import DEFAULTS, Task

SETUP = (
    "model=llama2_7b", "gpu=a100_80gb", "max_model_len=2048", "workload=sharegpt",
    "backend=contiguous", "backend.layout=layer", "engine.batching=static",
)  # fmt: skip
SIZES, QUICK_SIZES = (8, 4, 16), (4, 2, 8)
"""Requests a batch: a smaller batch finds a larger one's memory, and the other way round."""
LONGEST_OUTPUT, QUICK_OUTPUT = 400, 48
"""Tokens, at which outputs are cut, so that the figure is made in minutes."""
EXPANDABLE = "expandable_segments:True"
DTYPES = ("fp16", "bf16")
STEP_COLUMNS = ("batch", "allocated_bytes", "reserved_bytes", "peak_allocated_bytes")


class System(NamedTuple):
    """A way to decode the batches, and the job that does it."""

    name: str
    job: str
    padded: bool = True


THEIRS = System(HUGGING_FACE, "hf_llama:decode")
ENGINE = System(CONTIGUOUS, "hf_ours:engine")
WHOLE = System(WHOLE_BATCH, "hf_ours:whole_batch")
INSIDE = System(CONCATENATED, "hf_ours:concatenated")
UNPADDED = System("contiguous, requests not padded", "hf_ours:engine", padded=False)


class Panel(NamedTuple):
    """One of Hugging Face's caches with the `reserve` that is ours, under an allocator's settings,
    and the systems compared."""

    cache: str
    reserve: str
    alloc_conf: str
    systems: tuple[System, ...]

    @property
    def title(self) -> str:
        how = "expandable segments" if self.alloc_conf else "default allocator"
        return f"{self.cache} and {self.reserve}, {how}"


PANELS = (
    Panel("DynamicCache", "grow", "", (THEIRS, ENGINE, INSIDE, UNPADDED)),
    Panel("DynamicCache", "grow", EXPANDABLE, (THEIRS, ENGINE)),
    Panel("StaticCache", "max", "", (THEIRS, ENGINE, WHOLE)),
    Panel("StaticCache", "max", EXPANDABLE, (THEIRS, ENGINE)),
)
LONGEST_FIRST = sorted(
    ((panel, system) for panel in PANELS for system in panel.systems),
    key=lambda case: case[1] is not THEIRS,
)
"""Hugging Face's jobs take longest; ours find room beside and behind them."""

Results = Mapping[tuple[Panel, System], Any]
"""What the jobs returned."""


MODULES = ("torch", "bench.paper.hf_ours", "transformers.models.llama.modeling_llama")
"""Imported once, before jobs are forked."""


class HfCaches:
    """Memory step by step: an unmodified Hugging Face Llama, and ours."""

    name = "hf_caches"
    title = "memory of Hugging Face's DynamicCache and StaticCache beside contiguous grow and max"
    files = None

    def rows(self, task: Task) -> list[Row]:
        container, config = _compose(task)
        jobs = {case: _job(*case, container, config, task.quick) for case in LONGEST_FIRST}
        results = run_all(jobs, "virtual", MODULES, config.jobs, task.console)
        task.folder.mkdir(parents=True, exist_ok=True)
        _write_steps(task.folder / "steps.csv", results)
        return [row for panel in PANELS for row in _rows(panel, results, drawn_from(container))]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        return draw(rows)


OWN = ("backend.", "engine.")
"""Settings that panels are made of."""


def _compose(task: Task) -> tuple[dict[str, Any], Config]:
    """The experiment of all jobs. Raises SettingError."""
    if find_spec("transformers") is None:
        raise SettingError(
            "figure hf_caches runs Hugging Face's Llama, and transformers is not installed: "
            "`pip install 'transformers>=4.56'`."
        )
    own = next((each for each in task.overrides if each.lstrip("+~").startswith(OWN)), None)
    if own is not None:
        raise SettingError(f"{own}: figure hf_caches sets backend and engine itself: leave it out.")
    asked = [*DEFAULTS, *SETUP, *task.overrides, f"out={task.folder}"]
    (cell,), _ = compose_cells(asked, task.command)
    config = from_container(cell.config)
    _check(config, cell.device)
    return cell.config, config


def _check(config: Config, device: str) -> None:
    """Raises SettingError for what cannot be Hugging Face's too."""
    if device != "virtual":
        raise SettingError(f"device={config.device}: figure hf_caches is of the virtual GPU alone.")
    if config.model.learned_positions or config.tensor_parallel > 1:
        raise SettingError(
            f"model={config.model.name}, tensor_parallel={config.tensor_parallel} is no Llama on "
            "one GPU: "
            "choose one such as llama2_7b, with tensor_parallel=1."
        )
    if config.weight_dtype not in DTYPES or config.kv_dtype != config.weight_dtype:
        raise SettingError(
            f"weight_dtype={config.weight_dtype} and kv_dtype={config.kv_dtype}: Hugging Face's "
            "cache has the model's own type: give both as fp16, or both as bf16."
        )
    settings = config.alloc_conf or config.backend["alloc_conf"]
    if settings:
        raise SettingError(
            f"alloc_conf={settings} is what figure hf_caches varies itself: leave it out."
        )


def _job(
    panel: Panel, system: System, container: Mapping[str, Any], config: Config, quick: bool
) -> Job:
    own = dict(copy.deepcopy(container))
    own["backend"]["reserve"] = panel.reserve
    payload = {
        "config": own,
        "cache": panel.cache,
        "sizes": QUICK_SIZES if quick else SIZES,
        "longest_output": QUICK_OUTPUT if quick else LONGEST_OUTPUT,
        "padded": system.padded,
    }
    environment = gpu_environment(config.gpu) | allocator_environment(panel.alloc_conf)
    return Job(f"bench.paper.{system.job}", payload, environment)


def _rows(panel: Panel, results: Results, lengths: str) -> list[Row]:
    sides = [read_steps(system.name, results[panel, system]) for system in panel.systems]
    assert same_steps(sides), "the batches are the same"
    theirs, *ours = sides
    version = results[panel, THEIRS]["version"]
    shown = [row for side in sides for row in curves(side, panel.title, lengths, version)]
    return [*shown, *(row for side in ours for row in difference_rows(side, theirs, panel.title))]


def _write_steps(path: Path, results: Results) -> None:
    """One line a step of each system, in bytes."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["panel", "system", "step", *STEP_COLUMNS])
        for (panel, system), result in results.items():
            for step, values in enumerate(result["steps"]):
                writer.writerow([panel.title, system.name, step, *values])
