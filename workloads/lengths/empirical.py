"""Lengths from a file: a prompt and the output that came of it, drawn together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.base import WorkloadError
from workloads.formats.base import MalformedLineError
from workloads.formats.length_pairs import Pair, formats, read_pairs
from workloads.settings import MAX_TOKENS, count, refusal
from workloads.trace_file import find_trace


class PairsFromFile:
    """Pairs of lengths of a file, drawn with replacement, all alike likely.

    `format` is sharegpt (see workloads/formats/length_pairs.py for how its tokens are counted),
    csv, jsonl, or a trace's. Pairs with a part below `min_tokens`, a prompt above
    `max_prompt_tokens` or a sum above `max_total_tokens` are left out; vLLM's benchmarks of
    ShareGPT use 4, 1024 and 2048.

    Reads the file once, when made: `prompts` and `outputs` are its pairs in tokens, in the file's
    order, and `left_out` how many are not among them. Raises WorkloadError that names file, line
    and column.
    """

    def __init__(
        self,
        *,
        path: str,
        format: str = "auto",  # noqa: A002 (the setting's name)
        min_tokens: int = 1,
        max_prompt_tokens: int | None = None,
        max_total_tokens: int | None = None,
    ) -> None:
        if format not in ("auto", *formats()):
            allowed = f"one of auto, {', '.join(formats())}"
            raise refusal("format of length pairs", format, allowed, "auto looks at the file")
        least = count("min_tokens of length pairs", min_tokens, 1, MAX_TOKENS, "tokens", "use 1")
        longest = _limit("max_prompt_tokens of length pairs", max_prompt_tokens)
        total = _limit("max_total_tokens of length pairs", max_total_tokens)
        self.path = find_trace("workload.kinds.NAME.pairs.path", path)
        every = self._read(format)
        pairs = [
            pair
            for pair in every
            if min(pair) >= least and pair.prompt_tokens <= longest and sum(pair) <= total
        ]
        if not pairs:
            raise WorkloadError(f"{self.path}: no pairs of lengths are left: {_why(len(every))}.")
        self.left_out = len(every) - len(pairs)
        self.prompts, self.outputs = np.array(pairs, dtype=np.int64).T
        self.longest_prompt_tokens = int(self.prompts.max())

    def draw(
        self, rng: np.random.Generator, size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Prompts and outputs in tokens of `size` pairs."""
        drawn = rng.integers(len(self.prompts), size=size)
        return self.prompts[drawn], self.outputs[drawn]

    def _read(self, format_name: str) -> list[Pair]:
        try:
            return list(read_pairs(self.path, format_name))
        except MalformedLineError as error:
            raise WorkloadError(f"{self.path}, {error}.") from None
        except OSError as error:
            raise WorkloadError(f"{self.path} cannot be read: {error.strerror}.") from None


def _why(number: int) -> str:
    if not number:
        return "the file has none; give one that has lengths"
    limits = "min_tokens, max_prompt_tokens and max_total_tokens"
    return f"all {number:,} are outside the limits; widen {limits}"


def _limit(setting: str, value: int | None) -> int:
    if value is None:
        return 2 * MAX_TOKENS
    return count(setting, value, 2, MAX_TOKENS, "tokens", "leave it null for no limit")
