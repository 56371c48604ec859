"""What a soak says of itself while it runs."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from bench.soak import view
from bench.soak.state import Segment, Soak
from bench.soak.view import SoakView

GIB = 1 << 30


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Wall time, which a test sets."""
    now = [0.0]
    monkeypatch.setattr(view.time, "monotonic", lambda: now[0])
    return now


def said(completed: int | None, **changed: Any) -> dict[str, Any]:
    known = {} if completed is None else {"completed": completed, "output_tokens": 100 * completed}
    return {"ended": completed or 0, "running": 12, "waiting": 3} | known | changed


def test_rates_are_on_the_soaks_clock_and_time_left_on_both(clock: list[float]) -> None:
    soak = Soak(21600.0, "virtual", [], restarts=1, segments=[Segment("segment-000", 0.0, "start")])
    shown = SoakView(Console(file=io.StringIO(), width=200), soak)
    assert shown.lines()[1] == "starting a worker"
    for second in range(11):
        clock[0] = float(second)
        shown.progress(600.0 * second, said(450 * second))
    # 6,000 s in 10 s of wall time, 0.75 requests a second: 15,600 s are left, 26 s of wall time
    time, traffic, memory = shown.lines()
    assert time == (
        "1.7 h of 6.0 h (28%), 4.3 h to go, about 26 s of wall time; segment 1, 1 restarts"
    )
    assert traffic == "0.75 requests/s, 75 output tokens/s; 12 running, 3 waiting"
    assert memory == "KV in use -; reserved - allocated -; - OOM incidents"


def test_what_is_not_known_is_a_dash(clock: list[float]) -> None:
    soak = Soak(60.0, "virtual", [])
    shown = SoakView(Console(file=io.StringIO(), width=200), soak)
    for second in range(3):
        clock[0] = float(second)
        shown.progress(float(second), said(None, running=None, waiting=None))
    assert shown.lines()[1] == "0.00 requests/s, - output tokens/s; - running, - waiting"


def test_memory_is_shown_in_gib(clock: list[float]) -> None:
    shown = SoakView(Console(file=io.StringIO(), width=200), Soak(60.0, "virtual", []))
    memory = {
        "kv_held_share": 0.875, "reserved_bytes": 38 * GIB, "allocated_bytes": 36 * GIB,
        "incidents": 1200,
    }  # fmt: skip
    shown.progress(1.0, said(1, **memory))
    assert shown.lines()[2] == (
        "KV in use 88%; reserved - allocated 2.00 GiB of 38.0 GiB reserved; 1,200 OOM incidents"
    )


def test_without_a_terminal_there_is_a_line_now_and_then(clock: list[float]) -> None:
    written = io.StringIO()
    shown = SoakView(Console(file=written, width=200), Soak(60.0, "virtual", []))
    for second in range(100):
        clock[0] = float(second)
        shown.progress(second / 2, said(second))
        shown.tick()
    assert len(written.getvalue().splitlines()) == 3
    shown.note("restart 1: the run was killed")
    assert written.getvalue().endswith("restart 1: the run was killed\n")
