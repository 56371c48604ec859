"""Keeps a worker running until a soak is over: starts one, follows it, books its end, goes on.

No torch here. A worker dies with its supervisor (bench/device/fork_server.py), whose own death
loses nothing but the worker's last seconds: all that is needed to go on is on disk.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.cells import (
    FAILED,
    INTERRUPTED,
    Cell,
    Interrupts,
    cause_of,
    cell_interpreter,
    cell_job,
    cell_threads,
    cores,
    live_page,
)
from bench.dashboard.board import Board
from bench.device.launcher import Finished, Job, Launcher, Progress
from bench.errors import SettingError
from bench.metrics.records import write_json
from bench.setting_files import write_config
from bench.soak.segments import close_segment, next_segment, segment_cell
from bench.soak.state import LOCK, STATE, Began, Segment, Soak
from bench.soak.summary import soak_summary, trend_sentence
from bench.soak.view import SoakView

TICK_S = 0.25
DRAIN_S = 3600.0
"""Time for a worker that was asked to end to finish what runs; a second Ctrl-C is for less."""
FIRST_SUMMARY_S, SUMMARY_EVERY_S = 6.0, 30.0
SUMMARY_SHARE = 0.02
"""Of the time, at most: what a summary of a soak in progress may take."""
AT_ONCE = "stopped by the user, at once"
MOST_RESTARTS = 5
"""In a row, of workers that completed no request."""


class Supervisor:
    """One soak, of a cell whose configuration was checked."""

    def __init__(self, cell: Cell, soak: Soak, console: Console) -> None:
        self._cell = cell
        self._soak = soak
        self._console = console
        self._board = Board(cell.out.name, 1, soak.duration_s)
        self._view = SoakView(console, soak, self._board)
        self._in_vain = 0
        self._began_s = time.monotonic() - soak.wall_s
        self._summary_at_s = time.monotonic() + FIRST_SUMMARY_S

    def run(self, began: Began) -> int:
        """Runs the soak on and returns the exit code.

        Raises SettingError, with nothing written, where the first worker can't use its settings.
        """
        if began == "start":
            write_config(self._cell.out, self._cell.config)
        self._close_open_segment("the supervisor ended, and its worker with it")
        self._soak.status, self._soak.cause = "running", None
        self._write_books()
        if self._soak.at_its_end:
            self._end("completed", None)
        try:
            with (
                Interrupts() as interrupts,
                Launcher(
                    self._cell.device,
                    modules=_modules(self._cell),
                    interpreter=cell_interpreter(self._cell),
                ) as launcher,
                live_page(self._cell, self._board, self._cell.out, self._console),
                self._view,
            ):
                while not self._soak.over:
                    self._run_segment(launcher, interrupts, began)
                    began = "restart"
        except KeyboardInterrupt:
            self._close_open_segment(AT_ONCE)
            if not self._soak.over:
                self._end("stopped", AT_ONCE)
        self._write_summary()
        self._write_books()  # last: what is booked as ended has its summary
        return {"completed": 0, "stopped": INTERRUPTED}.get(self._soak.status, FAILED)

    def _close_open_segment(self, cause: str) -> None:
        """One whose worker was not waited for."""
        if self._soak.segments and self._soak.segments[-1].end_s is None:
            close_segment(self._cell, self._soak.segments[-1], "incomplete", cause)

    def _run_segment(self, launcher: Launcher, interrupts: Interrupts, began: Began) -> None:
        segment = next_segment(self._soak, began)
        self._soak.segments.append(segment)
        self._write_books()
        self._view.segment_began()
        finished = self._follow(launcher, launcher.submit(self._job(segment)), segment, interrupts)
        if finished.status == "user_error" and len(self._soak.segments) == 1:
            self._undo()
            raise SettingError(str(finished.cause))
        cut_short = finished.status in ("interrupted", "killed")
        cause = None if finished.status == "ok" else cause_of(finished)
        close_segment(self._cell, segment, "incomplete" if cut_short else "failed", cause)
        self._decide(segment, finished, stopped=bool(interrupts.count))
        if not self._soak.over:
            self._write_books()

    def _job(self, segment: Segment) -> Job:
        cell = segment_cell(self._cell, self._soak, segment)
        cell.out.mkdir(parents=True, exist_ok=True)
        job = cell_job(cell, cell.out / "run.log", cell_threads(cell, cores()))
        told = {"drains": True, "restarts": self._soak.restarts}
        return replace(job, payload={**job.payload, **told})

    def _follow(
        self, launcher: Launcher, job: int, segment: Segment, interrupts: Interrupts
    ) -> Finished:
        stopping = False
        while True:
            for event in launcher.wait(timeout=TICK_S):
                if isinstance(event, Finished):
                    return event
                self._hear(segment, event)
            if interrupts.count and not stopping:
                stopping = True
                self._view.note("ending what runs; press Ctrl-C again to stop at once")
                launcher.terminate(job, grace_s=DRAIN_S)
            if time.monotonic() > self._summary_at_s:
                self._write_summary()
            self._view.tick()

    def _hear(self, segment: Segment, event: Progress) -> None:
        self._view.progress(segment.start_s + event.data["simulated_s"], event.data)

    def _decide(self, segment: Segment, finished: Finished, *, stopped: bool) -> None:
        """Whether the soak is over, or what to go on after."""
        soak = self._soak
        if soak.at_its_end:
            self._end("completed", None)
        elif stopped:
            self._end("stopped", "stopped by the user")
        elif finished.status == "user_error":
            self._end("failed", segment.cause)
        else:
            soak.restarts += 1
            came_on = _completed_any(self._cell.out / segment.folder)
            self._in_vain = 0 if came_on else self._in_vain + 1
            self._view.note(f"restart {soak.restarts}: {segment.cause}")
            if self._in_vain >= MOST_RESTARTS:
                why = f"{MOST_RESTARTS} workers in a row completed no request: {segment.cause}"
                self._end("failed", why)

    def _end(self, status: Any, cause: str | None) -> None:
        self._soak.status, self._soak.cause = status, cause

    def _write_books(self) -> None:
        self._soak.wall_s = time.monotonic() - self._began_s
        self._soak.write(self._cell.out)

    def _write_summary(self) -> None:
        began_s = time.monotonic()
        self._soak.wall_s = began_s - self._began_s
        summary = soak_summary(self._cell, self._soak)
        if summary["requests"] is not None or self._soak.over:
            write_json(self._cell.out / "summary.json", summary)
        self._view.trend(trend_sentence(summary))
        took_s = time.monotonic() - began_s
        self._summary_at_s = time.monotonic() + max(SUMMARY_EVERY_S, took_s / SUMMARY_SHARE)

    def _undo(self) -> None:
        """Nothing is left of a soak that could not begin."""
        folder = self._cell.out
        shutil.rmtree(folder / self._soak.segments[0].folder, ignore_errors=True)
        for name in (STATE, LOCK, "config.yaml"):
            (folder / name).unlink(missing_ok=True)


def _modules(cell: Cell) -> list[str]:
    """What the worker needs, imported once."""
    plugins = (cell.config[group].get("_target_", "") for group in ("backend", "workload"))
    own = [target.rpartition(".")[0] for target in plugins if target]
    return ["torch", "bench.run", "workloads.later", *own]


def _completed_any(folder: Path) -> bool:
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return bool((summary.get("requests") or {}).get("completed"))
