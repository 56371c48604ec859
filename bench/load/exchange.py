"""One attempt at a request: sent, read as it streams, and how it ended."""

from __future__ import annotations

import math
import time

import gevent
from geventhttpclient.response import HTTPParseError

from bench.load.completions import Answer
from bench.load.connections import READ_BYTES, Connection, Connections, Response
from bench.load.habits import Habits
from bench.load.records import TIMED_OUT
from bench.load.refusals import message, retry_after_s
from bench.load.sse import SseParser
from bench.metrics.status import Status

SLOW_BUFFER_BYTES = 4096
"""Of a slow reader's socket; the kernel doubles it. What is not read fills it within a few dozen
events, then the server's own buffer, and then the server feels it."""
SLOW_READ_BYTES = 512
RESEND_WITHIN_S = 0.05
"""Beyond the way to the server and back. One that closes later had the request and gave it up."""
LAST_BYTES_S = 1.0
"""How long the end of the HTTP message may come after [DONE] for its connection to be kept."""
OK, SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS = 200, 503, 429


class _Left(Exception):  # noqa: N818 - a wish, not an error
    """The client has had enough."""


class _TimedOutError(Exception):
    """The client's time is up."""


class Exchange:
    """Sends `content` and reads the answer. Times are of time.monotonic(), None where the attempt
    did not come so far: `sent_s` on a connection that stood before, `end_s` always."""

    def __init__(
        self, connections: Connections, content: bytes, n: int, habits: Habits, timeout_s: float
    ) -> None:
        self.answer = Answer(n)
        self.status = Status.UNFINISHED
        self.cause: str | None = None
        self.http_status: int | None = None
        self.retry_after_s: float | None = None
        self.retryable = False
        self.left: str | None = None
        self.sent_s: float | None = None
        self.end_s = math.inf
        self.received_bytes = 0
        self.new_connection = False
        self.resent = False
        self.shared_reads = 0
        self._connections = connections
        self._content = content
        self._habits = habits
        self._timeout_s = timeout_s
        self._connection: Connection | None = None
        self._response = Response()
        self._events = SseParser()
        self._error_body = b""

    def run(self) -> None:
        """All of it. Whatever goes wrong is its status and cause; only being killed is raised."""
        try:
            self._exchange()
            self._conclude()
        except _Left:
            assert self._habits.leave is not None
            self.status, self.left = Status.CANCELLED, self._habits.leave.kind
        except _TimedOutError:
            self.status, self.cause = (
                Status.FAILED,
                f"{TIMED_OUT} {self._timeout_s:g} s (timeout_s)",
            )
        except ConnectionRefusedError:
            self.status, self.cause, self.retryable = Status.FAILED, "connection refused", True
        except (OSError, HTTPParseError) as error:
            self.status, self.cause = Status.FAILED, f"{type(error).__name__}: {error}"
        finally:
            if self.status != Status.COMPLETED:
                self.end_s = time.monotonic()
            self._release()

    def _exchange(self) -> None:
        piece = self._first_bytes()
        while True:
            self._take(piece)
            if self.answer.error is not None:
                return
            if self._response.message_complete or (not piece and self.answer.done):
                return
            if not piece:
                raise HTTPParseError("the connection closed in mid-answer")
            piece = self._receive()

    def _first_bytes(self) -> bytes:
        """Sends the request. A server may close an idle connection just then, without having read
        what was on its way: the request is sent anew, once, over a new connection."""
        piece = self._try_first_bytes(self._take_connection())
        if piece is not None:
            return piece
        self.resent = True
        piece = self._try_first_bytes(self._connections.open())
        assert piece is not None
        return piece

    def _try_first_bytes(self, connection: Connection) -> bytes | None:
        """None where an idle connection was closed as the request was sent."""
        self._connection = connection
        self.new_connection = not connection.idled
        now_s = time.monotonic()
        self.sent_s = now_s if self.sent_s is None else self.sent_s
        try:
            self._send()
            piece = self._receive()
        except (ConnectionResetError, BrokenPipeError):
            if not self._just_closed(connection, now_s):
                raise
            piece = b""
        if piece or not self._just_closed(connection, now_s):
            return piece
        connection.close()
        self._connection = None
        return None

    @staticmethod
    def _just_closed(connection: Connection, sent_s: float) -> bool:
        grace_s = RESEND_WITHIN_S + 2 * connection.handshake_s
        return connection.idled and time.monotonic() - sent_s <= grace_s

    def _send(self) -> None:
        """Raises _Left or _TimedOutError where the server takes the request too slowly."""
        assert self._connection is not None
        leave_s, give_up_s = self._leave_s(), self._give_up_s()
        try:
            wait_s = min(leave_s, give_up_s) - time.monotonic()
            self._connection.send(self._content, wait_s)
        except TimeoutError:
            raise _Left if leave_s < give_up_s else _TimedOutError from None

    def _take_connection(self) -> Connection:
        if self._habits.tokens_per_s is not None:
            return self._connections.open(SLOW_BUFFER_BYTES)
        return self._connections.take()

    def _receive(self) -> bytes:
        """What comes next; nothing at the connection's end. Raises _Left or _TimedOutError."""
        assert self._connection is not None
        leave_s, give_up_s = self._leave_s(), self._give_up_s()
        now_s = time.monotonic()
        try:
            if now_s >= min(leave_s, give_up_s):
                raise TimeoutError
            most = READ_BYTES if self._habits.tokens_per_s is None else SLOW_READ_BYTES
            piece, self._at_s = self._connection.receive(most, min(leave_s, give_up_s) - now_s)
        except TimeoutError:
            if self.answer.done:
                return b""
            raise _Left if leave_s < give_up_s else _TimedOutError from None
        self.received_bytes += len(piece)
        return piece

    def _leave_s(self) -> float:
        leave = self._habits.leave
        if leave is None or leave.after_s is None:
            return math.inf
        assert self.sent_s is not None
        return self.sent_s + leave.after_s

    def _give_up_s(self) -> float:
        assert self.sent_s is not None
        if self.answer.done:
            return self.end_s + LAST_BYTES_S
        return self.sent_s + self._timeout_s

    def _take(self, piece: bytes) -> None:
        self._response.feed(piece)
        if not self._response.headers_complete:
            return
        self.http_status = self._response.status_code
        body = self._response.take_body()
        if self.http_status != OK:
            self._error_body += body
            return
        before, first = self.answer.longest, self.answer.choices[0]
        chunks = len(first.chunks)
        for event in self._events.feed(body):
            self.answer.take(event, self._at_s)
        self.shared_reads += len(first.chunks) > chunks + 1
        if self.answer.complete or self.answer.done:
            self.end_s = min(self.end_s, self._at_s)
        self._maybe_leave()
        self._pace(self.answer.longest - before)

    def _maybe_leave(self) -> None:
        leave = self._habits.leave
        if leave is None or self.answer.done or self.answer.complete:
            return
        if leave.after_tokens is not None and self.answer.longest >= leave.after_tokens:
            raise _Left

    def _pace(self, tokens: int) -> None:
        """A slow reader takes its time over what it read."""
        if self._habits.tokens_per_s is not None and tokens and not self.answer.done:
            until_s = time.monotonic() + tokens / self._habits.tokens_per_s
            until_s = min(until_s, self._leave_s(), self._give_up_s())
            gevent.sleep(max(until_s - time.monotonic(), 0))

    def _conclude(self) -> None:
        """The status of an answer that was read to its end."""
        if self.http_status != OK:
            self._conclude_refusal()
        elif self.answer.error is not None:
            self.status, self.cause = Status.FAILED, f"error in mid-stream: {self.answer.error}"
        elif self.answer.complete:
            self.status = Status.COMPLETED
        else:
            self.status, self.cause = Status.FAILED, "the stream ended before the answer did"

    def _conclude_refusal(self) -> None:
        assert self.http_status is not None
        refused = 400 <= self.http_status < 500 or self.http_status == SERVICE_UNAVAILABLE
        self.status = Status.REJECTED if refused else Status.FAILED
        self.cause = f"HTTP {self.http_status}: {message(self._error_body)}"
        self.retryable = self.http_status in (TOO_MANY_REQUESTS, SERVICE_UNAVAILABLE)
        self.retry_after_s = retry_after_s(self._response.get("retry-after"))

    def _release(self) -> None:
        connection = self._connection
        if connection is None:
            return
        if self._response.should_close() or self._habits.tokens_per_s is not None:
            connection.close()
        else:
            self._connections.give_back(connection)
