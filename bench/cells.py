"""Cells of a matrix: each a run in a process of its own, several at a time, none of which can
take the others down."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from rich.console import Console

from bench.config import Config, check_run, from_container
from bench.dashboard.board import Board
from bench.device.interpreter import Interpreter
from bench.device.launcher import DeviceKind, Finished, Job, Launcher, Progress
from bench.device.probe import resolve_device
from bench.device.virtual import allocator_environment, gpu_environment
from bench.errors import SettingError
from bench.labels import labels
from bench.metrics.records import write_json
from bench.phases import Phases
from bench.progress import ProgressView
from bench.report.comparison import print_comparison
from bench.report.results import load_runs
from bench.setting_files import unusable, write_config
from bench.vllm.python import VllmPython, find_vllm

MODULES = ("torch", "bench.run", "backends.contiguous", "backends.bucketed",
           "backends.paged", "backends.paged_prefix", "backends.paged_radix", "backends.vmm",
           "bench.sources.batch_sizes", "bench.sources.beams", "bench.sources.graphs",
           "bench.sources.growing_kv", "bench.sources.lora", "bench.sources.speculative",
           "workloads.generated", "workloads.kinds.single", "workloads.kinds.sessions",
           "workloads.kinds.retrieval", "workloads.survivors.scores",
           "workloads.trace", "workloads.later")  # fmt: skip
"""Imported once, before runs are forked."""

TARGETS = {"inprocess": "bench.run:run", "locust": "bench.load.driven:run"}
"""What runs a cell, by driver."""

FAILED, INTERRUPTED = 1, 130
TICK_S = 0.25
MANY_PARAMETERS = 50_000_000
"""Fewer are computed by one thread: waking another takes as long as a small operation does, and
much longer where something else has its core."""
GRACE_S = 30.0
"""Time for a run that was asked to stop to write its results."""


@dataclass(slots=True)
class Cell:
    """One run to be: its name, configuration and folder, and the command that asked for it."""

    name: str
    config: dict[str, Any]
    out: Path
    command: list[str] = field(default_factory=list)
    device: DeviceKind = "virtual"
    status: str | None = None
    cause: str | None = None


@dataclass(slots=True)
class _Matrix:
    """Cells by where they are."""

    waiting: deque[Cell]
    asked_jobs: int | None
    total: int
    running: dict[int, Cell] = field(default_factory=dict)
    done: list[tuple[Cell, Finished]] = field(default_factory=list)

    def jobs(self, kind: DeviceKind) -> int:
        """Runs at a time. On a card they would take each other's memory; on the CPU, where times
        are measured, each other's cores, so that several must be asked for."""
        if kind == "cuda":
            return 1
        return self.asked_jobs or (1 if kind == "cpu" else cores())


def cores() -> int:
    """Of this machine."""
    return os.cpu_count() or 1


def check_cells(cells: list[Cell], folder: Path, *, here: bool = True) -> None:
    """Checks every configuration and the folder of the results, before the first cell starts;
    cells that run elsewhere may find a GPU there, and vLLM.

    Raises SettingError, or OmegaConf's errors for a value of a wrong type.
    """
    for cell in cells:
        config = from_container(cell.config)
        elsewhere = config.device == "cuda" and not here
        cell.device = "cuda" if elsewhere else resolve_device(config.device)
        check_run(config, cell.device)
        if here:
            cell_python(config, cell.device)
    check_folder(folder)


def run_cells(cells: list[Cell], console: Console, folder: Path, *, show: bool = True) -> int:
    """Runs cells that were checked and, with `show`, prints what came of them; returns the exit
    code.

    A wrong setting that only a run can find (a trace's line, a model that does not fit) is that
    cell's result; when no cell could use its settings it is raised as SettingError and nothing is
    written.
    """
    phases = Phases()
    phases.ended("compose and check")
    matrix = _Matrix(deque(), cells[0].config["jobs"], len(cells))
    board = Board(folder.name, len(cells))
    with Interrupts() as interrupts, live_page(cells[0], board, folder, console):
        for place, those in _by_place(cells).items():  # one launcher a device kind and Python
            matrix.waiting.extend(those)
            _run_at(place, matrix, interrupts, console, board)
    refused = [cell for cell, event in matrix.done if event.status == "user_error"]
    if matrix.done and len(refused) == len(matrix.done):
        raise SettingError(" ".join(dict.fromkeys(str(cell.cause) for cell in refused)))
    for cell in refused:
        write_failure(cell)
    if interrupts.count:
        left = len(matrix.waiting)
        console.print(f"Stopped: {left} of {matrix.total} cells did not run.", highlight=False)
    phases.ended("runs")
    if show:
        show_results(folder, console, empty=not matrix.done)
        phases.ended("table")
        if matrix.total > 1:
            console.print(str(phases), highlight=False)
    if interrupts.count:
        return INTERRUPTED
    return 0 if all(cell.status == "completed" for cell in cells) else FAILED


@contextmanager
def live_page(cell: Cell, board: Board, folder: Path, console: Console) -> Iterator[None]:
    """Serves the page of a board, if a cell's settings ask for it, and says where."""
    if not cell.config["dashboard"]:
        yield
        return
    from bench.dashboard.server import LivePage  # it draws: a second that others need not wait

    with LivePage(board, folder) as page:
        console.print(f"Dashboard: {page.url}", highlight=False)
        yield


def check_folder(folder: Path) -> None:
    """Raises SettingError for a folder that results cannot be written to."""
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise SettingError(
                f"out={folder} is not an empty folder: results are never overwritten; choose "
                "another or remove it."
            )
        above = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    except OSError as error:
        raise unusable(folder, error.strerror or str(error)) from error
    if not above.is_dir():
        raise unusable(folder, f"{above} is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise unusable(folder, f"{above} is not yours to write to")


class Interrupts:
    """Counts requests to stop (Ctrl-C, SIGTERM). The first is only noted, so that no cell is lost
    halfway between two states; the second raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: object) -> None:
        self.count += 1
        if self.count > 1:
            raise KeyboardInterrupt


class _Place(NamedTuple):
    """What cells of one launcher have in common."""

    kind: DeviceKind
    interpreter: Interpreter | None


def _by_place(cells: Iterable[Cell]) -> dict[_Place, list[Cell]]:
    places: dict[_Place, list[Cell]] = {}
    for cell in cells:
        place = _Place(cell.device, cell_interpreter(cell))
        places.setdefault(place, []).append(cell)
    return places


def cell_interpreter(cell: Cell) -> Interpreter | None:
    """The Python of an engine that has an environment of its own, None for this one."""
    if cell.config["engine"]["name"] != "vllm":
        return None
    python = cell_python(from_container(cell.config), cell.device)
    return python and python.interpreter()


def cell_python(config: Config, device: DeviceKind) -> VllmPython | None:
    """The Python with vLLM, where that is what runs. Raises SettingError if there is none."""
    if config.engine.name != "vllm":
        return None
    return find_vllm(config.vllm, virtual=device == "virtual")


def _run_at(
    place: _Place,
    matrix: _Matrix,
    interrupts: Interrupts,
    console: Console,
    board: Board,
) -> None:
    """Runs the waiting cells, which are of one place, unless the user stops them."""
    stopping = False
    real_time = any(cell.config["driver"]["clock"] == "wall" for cell in matrix.waiting)
    jobs = 1 if real_time else matrix.jobs(place.kind)  # times would depend on the neighbours
    with (
        tempfile.TemporaryDirectory(prefix="fragbench-logs-") as logs,
        Launcher(
            place.kind, modules=_modules(matrix.waiting), interpreter=place.interpreter
        ) as launcher,
        ProgressView(
            console, matrix.total, [cell.status for cell, _ in matrix.done], board
        ) as view,
    ):
        while matrix.running or (matrix.waiting and not interrupts.count):
            while matrix.waiting and len(matrix.running) < jobs and not interrupts.count:
                cell = matrix.waiting.popleft()
                job = cell_job(cell, _log(cell, Path(logs)), cell_threads(cell, cores() // jobs))
                number = launcher.submit(job)
                matrix.running[number] = cell
                view.started(cell.name)
            for event in launcher.wait(timeout=TICK_S):
                if isinstance(event, Progress):
                    view.progress(matrix.running[event.job].name, event.data)
                else:
                    cell = _finish(matrix, event, Path(logs))
                    view.finished(cell.name, cell.status, cell.cause)
            if interrupts.count and not stopping:
                stopping = True
                view.note("stopping: what is done is kept; press Ctrl-C again to stop at once")
                for number in matrix.running:
                    launcher.terminate(number, grace_s=GRACE_S)
            view.tick()


def _modules(cells: Iterable[Cell]) -> tuple[str, ...]:
    """What runs import, once; Hugging Face's caches and the compiler that they tell of tensors only
    where they are asked for."""
    if any(cell.config["engine"]["cache"] for cell in cells):
        return (*MODULES, "bench.hugging_face.caches", "torch._dynamo")
    return MODULES


def cell_threads(cell: Cell, most: int) -> int:
    """What a run computes with, of `most` cores; little is computed elsewhere than on the CPU."""
    if cell.device != "cpu" or from_container(cell.config).model.parameters < MANY_PARAMETERS:
        return 1
    return max(1, most)


def cell_job(cell: Cell, log: Path | None, threads: int = 1) -> Job:
    """What runs a cell whose device is known."""
    payload = {
        "config": cell.config,
        "out": str(cell.out),
        "device": cell.device,
        "command": cell.command,
    }
    target = TARGETS[cell.config["driver"]["name"]]
    return Job(target, payload, cell_environment(cell), log, threads)


def cell_environment(cell: Cell) -> dict[str, str]:
    """The environment of a process that uses a cell's device: the allocator's settings, and which
    virtual GPU there is."""
    config = from_container(cell.config)
    conf = ",".join(filter(None, (cell.config["backend"].get("alloc_conf"), config.alloc_conf)))
    environment = allocator_environment(conf)
    python = cell_python(config, cell.device)
    if cell.device == "virtual":
        environment |= gpu_environment(config.gpu, lazy_modules=python is not None)
    if python is not None:
        environment |= python.environment(virtual=cell.device == "virtual")
    return environment


def _log(cell: Cell, logs: Path) -> Path:
    return logs / f"{id(cell)}.log"  # a name may hold what a file's may not


def _finish(matrix: _Matrix, event: Finished, logs: Path) -> Cell:
    """Notes how a cell ended, and leaves a result with its cause if the run itself could not."""
    cell = matrix.running.pop(event.job)
    matrix.done.append((cell, event))
    if event.status == "ok":
        summary = json.loads((cell.out / "summary.json").read_text(encoding="utf-8"))
        cell.status, cell.cause = summary["status"], summary["cause"]
    else:
        cut_short = event.status in ("interrupted", "killed")
        cell.status = "incomplete" if cut_short else "failed"
        cell.cause = cause_of(event)
        if event.status != "user_error":
            write_failure(cell)
    log = _log(cell, logs)
    if cell.out.is_dir() and log.exists():
        with (cell.out / "run.log").open("ab") as kept:  # other processes of the run wrote there
            kept.write(log.read_bytes())
    return cell


def write_failure(cell: Cell) -> None:
    """A summary for a run that wrote none: its cause, and the requests whose end it recorded."""
    cell.out.mkdir(parents=True, exist_ok=True)
    if not (cell.out / "config.yaml").exists():
        write_config(cell.out, cell.config)
    ended = load_runs(cell.out)[0].request_counts
    write_json(
        cell.out / "summary.json",
        {
            "status": cell.status,
            "cause": cell.cause,
            **labels(cell.config, cell.device),
            "requests": dict(ended) or None,
        },
    )


def cause_of(event: Finished) -> str:
    """Why a run has no results of its own, in a sentence."""
    if event.status == "user_error":
        return event.cause or "a setting cannot be used"
    if event.signal:
        return f"the run was {event.cause}"
    if event.status == "interrupted":
        return "stopped by the user before it could write its results"
    what = f"{event.error_type}: {event.cause}" if event.error_type else event.cause
    return what or f"the run ended with exit code {event.exit_code}"


def show_results(folder: Path, console: Console, *, empty: bool) -> None:
    """Prints the comparison of what is in a folder, and what to do next."""
    if empty:
        console.print("Nothing ran.")
        return
    print_comparison(load_runs(folder), console)
    console.print(f"Results: {folder}", markup=False, highlight=False, soft_wrap=True)
    console.print(f"Next: fragbench report {folder}", markup=False, soft_wrap=True)
