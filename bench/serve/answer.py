"""One answer as its tokens come: its text, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from bench.serve.tokenizer import Decoder

FinishReason = Literal["stop", "length"]


class StopFinder:
    """Cuts text before the first stop word. Text that may be the start of one is held back.

    The first is the one that ends first, the longest of several that end there, so that it does
    not matter into which pieces the text is cut.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._held = ""
        self.found: str | None = None

    def push(self, text: str, *, may_stop: bool = True) -> str:
        """The text that is certain now. `may_stop` False lets stop words pass that end here."""
        self._held += text
        if may_stop:
            ends = [
                (self._held.find(stop) + len(stop), -len(stop), stop)
                for stop in self._stops
                if stop in self._held
            ]
            if ends:
                end, _, self.found = min(ends)
                return self._release(end - len(self.found), drop=True)
        return self._release(len(self._held) - self._may_begin())

    def flush(self) -> str:
        """What was held back."""
        return self._release(len(self._held))

    def _release(self, characters: int, *, drop: bool = False) -> str:
        text = self._held[:characters]
        self._held = "" if drop else self._held[characters:]
        return text

    def _may_begin(self) -> int:
        """Characters at the end that are the start of a stop word."""
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        for length in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0


class Answer:
    """An answer of at most `max_tokens` tokens, which ends at a stop word or one of `eos_ids`, but
    at neither within its first `min_tokens`.

    `finish_reason` is None until it has ended; `matched` is the stop word or id that ended it.
    """

    def __init__(
        self,
        index: int,
        decoder: Decoder,
        max_tokens: int,
        min_tokens: int = 0,
        stops: Sequence[str] = (),
        eos_ids: frozenset[int] = frozenset(),
    ) -> None:
        self.index = index
        self.tokens = 0
        self.finish_reason: FinishReason | None = None
        self.matched: str | int | None = None
        self._decoder = decoder
        self._stops = StopFinder(stops)
        self._max_tokens = max_tokens
        self._min_tokens = min_tokens
        self._eos_ids = eos_ids

    def push(self, token_id: int) -> str:
        """The text that is certain with this token. An end-of-sequence token counts and has none,
        and what its end cut off is given."""
        self.tokens += 1
        may_stop = self.tokens > self._min_tokens
        if may_stop and token_id in self._eos_ids:
            self.finish_reason, self.matched = "stop", token_id
            return self._stops.push(self._decoder.flush()) + self._stops.flush()
        text = self._stops.push(self._decoder.push(token_id), may_stop=may_stop)
        if self._stops.found is None and self.tokens >= self._max_tokens:
            self.finish_reason = "length"
            text += self._stops.push(self._decoder.flush(), may_stop=may_stop)
        if self._stops.found is not None:
            self.finish_reason, self.matched = "stop", self._stops.found
            return text
        return text + self._stops.flush() if self.finish_reason else text

    def end(self) -> str:
        """The engine said that this was the last token, though more were allowed."""
        self.finish_reason = "stop"
        return self._stops.push(self._decoder.flush(), may_stop=False) + self._stops.flush()
