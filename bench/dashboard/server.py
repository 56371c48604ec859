"""Serves the live page on this machine alone, from a thread of the command that runs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from functools import partial
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from math import inf
from pathlib import Path
from string import Template
from types import TracebackType

from bench.dashboard.board import Board
from bench.errors import SettingError
from bench.report import sections
from bench.report.repeats import gathered
from bench.report.results import load_runs
from bench.report.sensitivity import split

LOOPBACK = "127.0.0.1"
LINGER_S = 3.0
"""How long a page that is open may take to see the end; it asks once a second."""
POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; img-src data:; "
    "style-src 'self' 'unsafe-inline'"
)
HTML, CSS, SCRIPT, JSON = (
    f"{kind}; charset=utf-8"
    for kind in ("text/html", "text/css", "text/javascript", "application/json")
)


class LivePage:
    """The page of a board and of the results in `folder`, while a `with` block lasts."""

    def __init__(self, board: Board, folder: Path) -> None:
        self._results = _Results(board, folder)
        self._asked_s = -inf
        routes: dict[str, tuple[str, Callable[[], str]]] = {
            "/": (HTML, _page),
            "/page.css": (CSS, _style),
            "/page.js": (SCRIPT, partial(_resource, "bench.dashboard", "page.js")),
            "/state": (JSON, lambda: self._state(board)),
            "/results": (HTML, self._results.html),
        }
        try:
            self._server = ThreadingHTTPServer((LOOPBACK, 0), partial(_Handler, routes))
        except OSError as error:
            raise SettingError(
                f"dashboard=true cannot listen on {LOOPBACK}: {error.strerror}; leave it out."
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """For a browser on this machine."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}/"

    def __enter__(self) -> LivePage:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._let_watchers_see_the_end()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _state(self, board: Board) -> str:
        self._asked_s = time.monotonic()
        return json.dumps(board.state(), allow_nan=False, default=str)

    def _let_watchers_see_the_end(self) -> None:
        """Gives a page that is open the time to ask for the last results."""
        end_s = time.monotonic() + LINGER_S
        while time.monotonic() < min(end_s, self._asked_s + LINGER_S):
            if self._results.told_all:
                time.sleep(0.1)  # for the answer's way
                return
            time.sleep(0.05)


class _Handler(BaseHTTPRequestHandler):
    """Answers a GET of a route; to others' names for this machine it says nothing."""

    def __init__(
        self, routes: dict[str, tuple[str, Callable[[], str]]], *arguments: object
    ) -> None:
        self._routes = routes
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """One of the routes, or 404; 421 where a page elsewhere gave this machine its own name."""
        host = (self.headers.get("Host") or "").rpartition(":")[0]
        if host not in (LOOPBACK, "localhost"):
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, HTML, "")
        elif self.path not in self._routes:
            self._answer(HTTPStatus.NOT_FOUND, HTML, "There is no such page.")
        else:
            kind, content = self._routes[self.path]
            self._answer(HTTPStatus.OK, kind, content())

    def _answer(self, status: HTTPStatus, kind: str, content: str) -> None:
        body = content.encode("utf-8", errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """The terminal is the command's."""


class _Results:
    """Tables of the runs that ended, made anew when another one did."""

    def __init__(self, board: Board, folder: Path) -> None:
        self._board, self._folder = board, folder
        self._lock = threading.Lock()
        self._made_of, self._html = 0, ""

    @property
    def told_all(self) -> bool:
        """Whether somebody asked since the last run ended."""
        return self._made_of == self._board.ended

    def html(self) -> str:
        """Of what is on disk; empty before the first run ended."""
        with self._lock:
            ended = self._board.ended
            if ended != self._made_of:
                self._html = self._tables()
                self._made_of = ended
            return self._html

    def _tables(self) -> str:
        try:
            runs = [run for run in load_runs(self._folder) if run.summary]
        except SettingError:
            return ""
        rows, _ = split(gathered(runs))
        return sections.each_workload(rows, sections.OVERVIEW) if rows else ""


def _resource(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")


def _page() -> str:
    title = escape("fragbench: live")
    return Template(_resource("bench.dashboard", "page.html")).substitute(title=title)


def _style() -> str:
    return _resource("bench.report", "report.css") + _resource("bench.dashboard", "page.css")
