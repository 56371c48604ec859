"""Part 6: an unmodified vLLM on the card and on a virtual GPU of its size.

The same matrix runs with device=cuda and with device=virtual. Blocks, steps and preemptions are
compared, and what the card took beside PyTorch's allocator is written as settings of a GPU, with
which the virtual one runs once more.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.errors import SettingError
from bench.gpu import GIB
from bench.gpu_check.calibration import Calibration, as_yaml, calibrate
from bench.gpu_check.card import Card
from bench.gpu_check.part import Task, Verdict, write_rows
from bench.gpu_check.processes import PartError, run_fragbench
from bench.gpu_check.vllm_cells import Case, Cell, read_cells
from bench.gpu_check.vllm_rows import COLUMNS, compare_cells, judge
from bench.metrics.records import write_text
from bench.vllm.python import find_vllm
from bench.vllm.settings import VllmSettings

MODES = "vllm.mode=eager,graphs"
BUDGETS = "kv_budget=null,128MiB"
"""As many blocks as utilization leaves, and 256, for which the requests wait and are preempted."""

TRAFFIC = (
    "engine=vllm",
    "backend=paged",
    "model=llama3_8b",
    "model.layers=8",  # a quarter of its layers: 5.6 GB of weights
    "max_model_len=2048",
    "utilization=0.9",
    "workload=sharegpt",
    # All of them before the first step ends, so that steps do not depend on how long they take.
    "workload/arrivals=constant",
    "workload.rate_rps=1000000",
    "workload.num_requests=64",
    "workload.duration_s=null",
    "workload.kinds.sharegpt.output.mean_tokens=100",
    "workload.kinds.sharegpt.output.max_tokens=200",
)


def check(task: Task, limit_s: float) -> Verdict:
    """What is scheduled the same, blocks and reserved memory near to each other."""
    try:
        find_vllm(VllmSettings(), virtual=True)
    except SettingError as error:
        return Verdict(None, str(error))
    on_card = ["device=cuda", *task.card.overrides()]
    return compare(task, on_card, virtual_overrides(task.card), (MODES, BUDGETS), limit_s)


def virtual_overrides(card: Card) -> list[str]:
    """Hydra's, for the card as conf/gpu/ has it, but for what it says of its whole memory."""
    whole = f"gpu.memory_gib={card.total_bytes / GIB}"
    capability = f"gpu.compute_capability='{card.compute_capability}'"
    return ["device=virtual", *card.overrides(), whole, capability]


def compare(
    task: Task,
    on_card: Sequence[str],
    on_virtual: Sequence[str],
    sweep: Sequence[str],
    limit_s: float,
    traffic: Sequence[str] = TRAFFIC,
) -> Verdict:
    """The matrix on both sides, given by Hydra's overrides. Leaves vllm.csv and vllm_gpu.yaml."""
    matrices = _Matrices(task, traffic, limit_s)
    card = matrices.run("card", [*on_card, *sweep])
    virtual = matrices.run("virtual", [*on_virtual, *sweep])
    calibration = calibrate(card)
    calibrated: dict[Case, Cell] = {}
    if calibration is not None:
        _write(task, calibration, card)
        calibrated = matrices.try_again([*on_virtual, *calibration.overrides(), MODES])
    rows = compare_cells(card, virtual, calibrated)
    for row in rows:
        task.say(str(row))
    write_rows(task.folder / "vllm.csv", COLUMNS, [row.cells() for row in rows])
    sides = {"card": card, "virtual": virtual, "calibrated": calibrated}
    verdict = judge(rows, sides, len(card))
    found = "none" if calibration is None else " ".join(calibration.overrides())
    return Verdict(verdict.passed, f"{verdict.figures}; calibration: {found}")


def _write(task: Task, calibration: Calibration, card: dict[Case, Cell]) -> None:
    (version,) = {cell.version for cell in card.values() if cell.version}
    text = as_yaml(calibration, task.card, version)
    write_text(task.folder / "vllm_gpu.yaml", text)
    task.say(text)


class _Matrices:
    """Matrices of one traffic, in the time that a part has for all."""

    def __init__(self, task: Task, traffic: Sequence[str], limit_s: float) -> None:
        self._task = task
        self._traffic = traffic
        self._deadline = time.monotonic() + limit_s

    def run(self, side: str, overrides: Sequence[str]) -> dict[Case, Cell]:
        """Its cells. Raises PartError where there are none."""
        folder = self._task.folder / f"vllm_{side}"
        log = folder.with_suffix(".log")
        arguments = ["matrix", *self._traffic, *overrides, f"out={folder}"]
        left_s = max(self._deadline - time.monotonic(), 0)
        code = run_fragbench(arguments, log, left_s, self._task.say)
        cells = read_cells(folder)
        if not cells:
            raise PartError(f"the matrix ended with exit code {code} and no results, see {log}")
        return cells

    def try_again(self, overrides: Sequence[str]) -> dict[Case, Cell]:
        """The calibrated virtual GPU's; none where no time is left: all else is known by then."""
        try:
            return self.run("calibrated", overrides)
        except PartError as error:
            self._task.say(str(error))
            return {}
