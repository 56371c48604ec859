"""The live view, on a terminal that keeps what it is sent."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from bench.progress import ProgressView


def make_console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    sent = io.StringIO()
    return Console(file=sent, force_terminal=terminal, width=110, color_system=None), sent


def shown(view: ProgressView) -> list[str]:
    return [line.plain for line in view._lines()]


def state(ended: int, expected: int | None) -> dict[str, int | float | None]:
    return {
        "simulated_s": 75.0,
        "ended": ended,
        "expected": expected,
        "running": 3,
        "waiting": 1200,
    }


def test_the_view_counts_cells_and_says_where_they_are() -> None:
    console, _ = make_console(terminal=True)
    with ProgressView(console, 4, ["completed", "failed"]) as view:
        view.started("a")
        view.started("b")
        view.progress("a", state(500, 2000))
        head, first, second = shown(view)
        assert head.startswith("2 of 4 done, 2 running, 1 failed, about ")
        assert first.startswith("  a: 500 of 2,000 requests ended, 3 running, 1,200 waiting; 75 s")
        assert second.startswith("  b: starting, ")
        view.finished("a", "failed", "killed")
        view.finished("b", "completed", None)
        assert shown(view) == ["4 of 4 done, 0 running, 2 failed, about 0 s left"]


def test_time_left_follows_what_running_cells_have_done() -> None:
    console, _ = make_console(terminal=True)
    with ProgressView(console, 1, []) as view:
        view.started("a")
        assert "time left unknown" in shown(view)[0]
        view.progress("a", state(10, None))  # how many will come is not known
        assert "time left unknown" in shown(view)[0]
        view.progress("a", state(1, 1_000_000))
        assert "time left unknown" in shown(view)[0]
        view.progress("a", state(50, 100))
        assert re.search(r"about \d+ s left", shown(view)[0])


@pytest.mark.parametrize("terminal", [True, False])
def test_a_failure_is_said_at_once_with_its_cause(terminal: bool) -> None:
    console, sent = make_console(terminal=terminal)
    with ProgressView(console, 2, []) as view:
        view.started("a")
        view.tick()
        view.finished("a", "failed", "killed by [SIGKILL]")
        view.note("stopping")
        view.tick()
    assert re.search(r"\[1/2\] a: failed in 0\.\d s: killed by \[SIGKILL\]\n", sent.getvalue())
    assert "stopping" in sent.getvalue()


def test_a_terminal_is_left_clean() -> None:
    """The live lines are erased and the cursor is shown again."""
    console, sent = make_console(terminal=True)
    with ProgressView(console, 2, []) as view:
        view.started("a")
        view.tick()
    hide, show, erase = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"
    text = sent.getvalue()
    assert text.count(hide) == text.count(show) == 1
    assert text.rindex(erase) > text.rindex("running")


def test_without_a_terminal_there_is_a_line_a_cell_and_no_control() -> None:
    console, sent = make_console(terminal=False)
    with ProgressView(console, 2, []) as view:
        for name in ("a", "b"):
            view.started(name)
            view.progress(name, state(1, 2))
            view.tick()
            view.finished(name, "completed", None)
    assert "\x1b" not in sent.getvalue()
    assert [line.split(" in ")[0] for line in sent.getvalue().splitlines()] == [
        "[1/2] a: completed",
        "[2/2] b: completed",
    ]
