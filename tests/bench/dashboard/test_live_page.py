"""The live page: what it is told, who may ask, and that a run fills it."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bench.dashboard.board import CURVES, MOST_POINTS, Board
from bench.dashboard.server import LivePage
from bench.device.occupancy import occupancy
from tests.bench.report.conftest import run_writer
from tests.virtual_gpu import skip_without_virtual_gpu


def said(ended: int = 0, **more: Any) -> dict[str, Any]:
    return dict.fromkeys(CURVES, 1) | {"simulated_s": 1.0, "ended": ended, "expected": 10} | more


def ask(url: str, path: str, host: str | None = None) -> tuple[int, str]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), int(parts.port or 0), timeout=10)
    connection.request("GET", path, headers={"Host": host or parts.netloc})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.fixture
def board() -> Board:
    board = Board("mine", 2)
    board.started("a")
    board.progress("a", 1.0, said(3))
    return board


@pytest.fixture
def url(board: Board, tmp_path: Path) -> Iterator[str]:
    with LivePage(board, tmp_path) as page:
        yield page.url


def test_a_board_keeps_curves_of_bounded_length_over_the_whole_run() -> None:
    board = Board("mine", 1)
    board.started("a")
    for second in range(10 * MOST_POINTS):
        board.progress("a", float(second), said(second))
    (cell,) = board.state()["running"]
    times = [point[0] for point in cell["points"]]
    assert MOST_POINTS // 2 <= len(times) <= MOST_POINTS
    assert times == sorted(times)
    assert times[0] < 10 * MOST_POINTS / 50
    assert times[-1] > 10 * MOST_POINTS * 0.95


def test_what_ended_is_named_with_its_cause(board: Board) -> None:
    board.finished("a", "failed", "out of memory")
    state = board.state()
    assert (state["ended"], state["running"]) == (1, [])
    assert [(cell["name"], cell["status"], cell["cause"]) for cell in state["done"]] == [
        ("a", "failed", "out of memory")
    ]


def test_it_answers_with_the_state_and_its_own_files_alone(url: str) -> None:
    state = json.loads(ask(url, "/state")[1])
    assert state["running"][0]["now"]["ended"] == 3
    assert ask(url, "/")[0] == 200
    assert ask(url, "/results") == (200, "")
    assert ask(url, "/../../etc/passwd")[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example:80"])
def test_a_page_elsewhere_that_took_this_machines_address_gets_nothing(url: str, host: str) -> None:
    assert ask(url, "/state", host) == (421, "")


def test_a_page_that_is_open_sees_the_end(board: Board, tmp_path: Path) -> None:
    """It asks for the last results before the server goes."""
    run_writer(tmp_path)("a")
    page = LivePage(board, tmp_path)
    pool = ThreadPoolExecutor(1)
    with page:
        ask(page.url, "/state")
        board.finished("a", "completed", None)

        def ask_later() -> tuple[int, str]:
            time.sleep(0.3)
            return ask(page.url, "/results")

        asked = pool.submit(ask_later)
    status, html = asked.result()
    assert (status, "<table" in html) == (200, True)


def test_it_listens_on_this_machine_alone(url: str) -> None:
    assert urlsplit(url).hostname == "127.0.0.1"


def test_a_map_has_the_share_of_each_part_that_is_held() -> None:
    """Two segments of 4 and 6: held 3 of the first from its start, and the middle 2 of the other.
    In five parts of 2: full, half, empty, full, empty."""
    blocks = [(3, "active_allocated"), (1, "inactive")]
    other = [(2, "inactive"), (2, "active_pending_free"), (2, "inactive")]
    segments = [
        {"address": 100, "blocks": [{"size": n, "state": state} for n, state in other]},
        {"address": 10, "blocks": [{"size": n, "state": state} for n, state in blocks]},
    ]
    assert occupancy(segments, 5) == [100, 50, 0, 100, 0]
    assert occupancy([], 5) == []


def test_a_run_fills_it(tmp_path: Path) -> None:
    """A run of ten hours of modelled time, looked at and stopped."""
    skip_without_virtual_gpu()
    hours = ("backend=bucketed", "workload=mixed", "workload.duration_s=3600", "dashboard=true")
    command = [sys.executable, "-m", "bench", "run", *hours, f"out={tmp_path / 'run'}"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        url = running.stdout.readline().removeprefix("Dashboard: ").strip()
        now: dict[str, Any] = {}
        end_s = time.monotonic() + 60
        while not now.get("memory_map") and time.monotonic() < end_s:
            time.sleep(0.1)
            cells = json.loads(ask(url, "/state")[1])["running"]
            now = cells[0]["now"] if cells else {}
    finally:
        running.terminate()
        running.communicate(timeout=60)
    assert len(now["memory_map"]) == 1024
    assert set(now["memory_map"]) <= set(range(101))
    held = sum(now["memory_map"]) / 1024 / 100 * now["reserved_bytes"]
    assert held == pytest.approx(now["allocated_bytes"], rel=0.02)
    assert sum(now["kv_bytes"].values()) > 0


def test_it_draws_without_errors(url: str, board: Board) -> None:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no Chromium is installed")
    kv = {"token_states_bytes": 1, "unfilled_bytes": 1, "rounding_bytes": 0, "cached_bytes": 1,
          "free_bytes": 1}  # fmt: skip
    hurt = "<img src=x onerror=alert(1)>"
    board.started(hurt)
    board.progress(hurt, 2.0, said(5, memory_map=[0, 50, 100], kv_bytes=kv, waiting=2, incidents=0))
    errors: list[str] = []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        page.wait_for_selector(".cell canvas")
        assert page.locator("h3", has_text=hurt).count() == 1
        assert page.locator("#head").inner_text().startswith("0 of 2 done, 2 running")
        browser.close()
    assert errors == []
