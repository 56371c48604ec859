"""Part 6: an unmodified vLLM on the card and on a virtual GPU of its size.

The same matrix runs with device=cuda and with device=virtual. Blocks, steps and preemptions are
compared, and what the card took beside PyTorch's allocator is written as settings of a GPU, with
which the virtual one runs once more.
"""

from __future__ import annotations

import math
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
    """The matrix on both sides, given by Hydra's overrides. Leaves vllm_gpu.yaml as soon as the
    card is done, and vllm.csv. Raises PartError where the card gave nothing."""
    matrices = _Matrices(task, traffic, limit_s)
    card = matrices.run("card", [*on_card, *sweep])
    if not card:
        raise PartError(matrices.trouble[0])
    calibration = calibrate(card)
    if calibration is not None:
        _write(task, calibration, card)
    virtual = matrices.run("virtual", [*on_virtual, *sweep])
    calibrated: dict[Case, Cell] = {}
    if calibration is not None:
        calibrated = matrices.run("calibrated", [*on_virtual, *calibration.overrides(), MODES])
    rows = compare_cells(card, virtual, calibrated)
    for row in rows:
        task.say(str(row))
    write_rows(task.folder / "vllm.csv", COLUMNS, [row.cells() for row in rows])
    sides = {"card": card, "virtual": virtual, "calibrated": calibrated}
    verdict = judge(rows, sides, _cells_of(sweep))
    found = "none" if calibration is None else " ".join(calibration.overrides())
    figures = [verdict.figures, *matrices.trouble, f"calibration: {found}"]
    return Verdict(verdict.passed, "; ".join(figures))


def _cells_of(sweep: Sequence[str]) -> int:
    """
    >>> _cells_of(["a=1,2", "b=1,2,3"])
    6
    """
    return math.prod(1 + setting.count(",") for setting in sweep)


def _write(task: Task, calibration: Calibration, card: dict[Case, Cell]) -> None:
    (version,) = {cell.version for cell in card.values() if cell.version}
    text = as_yaml(calibration, task.card, version)
    write_text(task.folder / "vllm_gpu.yaml", text)
    task.say(text)


class _Matrices:
    """Matrices of one traffic, in the time that a part has for all. `trouble` says which of them
    are not whole, and why."""

    def __init__(self, task: Task, traffic: Sequence[str], limit_s: float) -> None:
        self._task = task
        self._traffic = traffic
        self._deadline = time.monotonic() + limit_s
        self.trouble: list[str] = []

    def run(self, side: str, overrides: Sequence[str]) -> dict[Case, Cell]:
        """Its cells: those that ran, where the time did not last; none where nothing did."""
        folder = self._task.folder / f"vllm_{side}"
        log = folder.with_suffix(".log")
        arguments = ["matrix", *self._traffic, *overrides, f"out={folder}"]
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            self.trouble.append(f"no time was left for vllm_{side}")
            return {}
        try:
            code = run_fragbench(arguments, log, left_s, self._task.say)
        except PartError as error:
            self.trouble.append(str(error))
            return read_cells(folder)
        cells = read_cells(folder)
        if not cells:
            why = f"the matrix ended with exit code {code} and no results, see {log}"
            self.trouble.append(why)
        return cells
