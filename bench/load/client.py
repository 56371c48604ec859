"""A client of the server: a session's requests, each at its time, and a row for every attempt."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import gevent

from bench.load.asking import Asker
from bench.load.completions import Choice
from bench.load.connections import Connections
from bench.load.exchange import Exchange
from bench.load.habits import Habits, habits
from bench.load.settings import LoadSettings
from bench.metrics.status import Status
from workloads.base import Request

Row = dict[str, Any]


class Client:
    """Plays sessions, any number at a time, each in a greenlet of its caller's.

    `start_s` is the run's start on time.monotonic(), `end_s` when nothing is sent any more;
    `time_scale` seconds of the workload pass in one of this clock.
    `on_row` gets each attempt's row when it ended, `on_end` the attempt itself.
    """

    def __init__(
        self,
        load: LoadSettings,
        asker: Asker,
        connections: Connections,
        *,
        seed: int,
        worker: int,
        time_scale: float = 1.0,
        on_row: Callable[[Row], None],
        on_end: Callable[[Exchange], None],
    ) -> None:
        self.start_s = 0.0
        self.end_s = math.inf
        self._load = load
        self._asker = asker
        self._connections = connections
        self._seed = seed
        self._worker = worker
        self._time_scale = time_scale
        self._on_row = on_row
        self._on_end = on_end

    def due_s(self, scheduled_s: float) -> float:
        """When that second of the workload is, on time.monotonic()."""
        return self.start_s + scheduled_s / self._time_scale

    def play(self, request: Request, due_s: float) -> None:
        """Sends a request at `due_s`, and its later turns when the one before has ended and its
        time has passed."""
        said: dict[int, Choice] = {}
        turn: Request | None = request
        while turn is not None:
            content = self._asker.request(turn, said)
            if due_s >= self.end_s:
                return
            sleep_until(due_s)
            said[turn.request_id] = self._ask(turn, due_s, content).answer.choices[0]
            turn = turn.next_turn
            if turn is not None:
                due_s = time.monotonic() + turn.scheduled_s / self._time_scale

    def _ask(self, request: Request, due_s: float, content: bytes) -> Exchange:
        """Sends a request until it was answered or may not be tried again."""
        own = habits(self._load, self._seed, request, self._time_scale)
        attempt = 0
        while True:
            exchange = self._try(request, due_s, content, own, attempt)
            if not exchange.retryable or attempt == self._load.retries.limit:
                return exchange
            asked_s = exchange.retry_after_s
            gevent.sleep(own.backoffs_s[attempt] if asked_s is None else asked_s)
            attempt += 1

    def _try(
        self, request: Request, due_s: float, content: bytes, own: Habits, attempt: int
    ) -> Exchange:
        exchange = Exchange(self._connections, content, request.branches, own, self._load.timeout_s)
        try:
            exchange.run()
        finally:  # an attempt that was killed is a row too, once it was sent
            if exchange.status != Status.UNFINISHED or exchange.sent_s is not None:
                slow = own.tokens_per_s is not None
                at_s = due_s - self.start_s
                about = {"attempt": attempt, "scheduled_s": at_s, "slow_reader": slow}
                self._on_row(self._row(request, exchange) | about)
                self._on_end(exchange)
        return exchange

    def _row(self, request: Request, exchange: Exchange) -> Row:
        answer = exchange.answer
        times_s = answer.token_times_s()
        end_s = None if exchange.status == Status.UNFINISHED else self._since_start(exchange.end_s)
        return {
            "request_id": request.request_id,
            "kind": request.kind,
            "worker": self._worker,
            "branches": request.branches,
            "prompt_tokens": request.prompt_tokens,
            "output_tokens": request.output_tokens,
            "generated_tokens": max(map(len, times_s)),
            "all_generated_tokens": answer.generated_tokens,
            "counted_by": answer.counted_by,
            "usage_prompt_tokens": answer.prompt_tokens,
            "usage_completion_tokens": answer.completion_tokens,
            "cached_tokens": answer.cached_tokens,
            "sent_s": self._since_start(exchange.sent_s),
            "first_token_s": self._since_start(answer.first_token_s),
            "last_token_s": self._since_start(answer.last_token_s),
            "end_s": end_s,
            "token_times_s": [at_s - self.start_s for at_s in times_s[0]],
            "status": exchange.status,
            "http_status": exchange.http_status,
            "cause": exchange.cause,
            "left": exchange.left,
            "left_s": end_s if exchange.left else None,
            "new_connection": exchange.new_connection,
            "resent": exchange.resent,
            "shared_reads": exchange.shared_reads,
            "answers": answer.answers,
        }

    def _since_start(self, at_s: float | None) -> float | None:
        return None if at_s is None else at_s - self.start_s


def sleep_until(at_s: float) -> None:
    """Sleeps until an absolute time of time.monotonic()."""
    while (left_s := at_s - time.monotonic()) > 0:
        gevent.sleep(left_s)
