"""One prompt that the engine answers: its answers' text as tokens come, and what metrics see."""

from __future__ import annotations

from typing import NamedTuple

from bench.serve.answer import Answer
from bench.serve.channel import Ended, Reason, Tokens
from bench.serve.engine_client import Stream
from bench.serve.metrics import ServerMetrics


class Piece(NamedTuple):
    """What a token added to an answer; its end may add text without one."""

    answer: Answer
    token_id: int | None
    text: str


class EngineCall:
    """A request of the engine with its `answers`, one a branch.

    `ended` is None until the engine has said that it holds no memory any more. Times are seconds
    of the machine's monotonic clock; `paused_s` is the length of the `pauses` gaps between tokens
    in which its reader was behind.
    """

    def __init__(
        self,
        stream: Stream,
        answers: list[Answer],
        prompt_tokens: int,
        received_s: float,
        metrics: ServerMetrics,
    ) -> None:
        self.answers = answers
        self.prompt_tokens = prompt_tokens
        self.received_s = received_s
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None
        self.paused_s = 0.0
        self.pauses = 0
        self.cancelled_s: float | None = None
        self.reason: Reason | None = None
        self.ended: Ended | None = None
        self._stream = stream
        self._metrics = metrics

    async def step(self) -> list[Piece] | None:
        """What the engine's next step adds, None when it has ended the call.

        When all answers are stopped the engine is told so; when the longest is complete it knows.
        """
        if self.ended is not None:
            return None
        message = await self._stream.next()
        if isinstance(message, Ended):
            self.ended = message
            self._metrics.call_ended(self)
            return self._rest() if message.status == "completed" else None
        pieces = self._take(message)
        if all(answer.finish_reason == "stop" for answer in self.answers):
            self._stream.cancel("stop")
        return pieces

    def cancel(self, reason: Reason, now_s: float) -> None:
        """Asks the engine to end the call; the first reason counts."""
        if self.ended is None and self.reason is None:
            self.reason, self.cancelled_s = reason, now_s
            self._stream.cancel(reason)

    async def run_out(self) -> None:
        """Waits for the end of a call whose answers nobody wants."""
        while await self.step() is not None:
            pass

    def _rest(self) -> list[Piece] | None:
        """Of answers that were shorter than they might have been."""
        unended = [answer for answer in self.answers if answer.finish_reason is None]
        return [Piece(answer, None, answer.end()) for answer in unended] or None

    def _take(self, message: Tokens) -> list[Piece]:
        pieces = [
            Piece(answer, token_id, answer.push(token_id))
            for answer, token_id in zip(self.answers, message.token_ids, strict=True)
            if answer.finish_reason is None
        ]
        self._metrics.tokens_came(self, message.at_s, len(pieces), message.resumed)
        if message.resumed and self.last_token_s is not None:
            self.paused_s += message.at_s - self.last_token_s
            self.pauses += 1
        self.last_token_s = message.at_s
        if self.first_token_s is None:
            self.first_token_s = message.at_s
        return pieces
