"""Lengths from a file: a prompt and the output that came of it, drawn together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.base import WorkloadError
from workloads.formats.choices import tally, why_none
from workloads.formats.opening import reading
from workloads.formats.registry import choose
from workloads.settings import MAX_TOKENS, count
from workloads.trace_file import find_trace

_OWNER = "workload.kinds.NAME.pairs"


class PairsFromFile:
    """Pairs of lengths of a file, drawn with replacement, all alike likely.

    `format` is any that the workload of traces reads, whose times do not matter here. Pairs with a
    part below `min_tokens`, a prompt above `max_prompt_tokens` or a sum above `max_total_tokens`
    are left out; vLLM's benchmarks of ShareGPT use 4, 1024 and 2048. `on_bad_row`,
    `failed_requests` and `output_tokens` are as for the workload of traces.

    Reads the file once, when made, and keeps 16 bytes a pair: `prompts` and `outputs` are its pairs
    in tokens, in the file's order, and `left_out` how many are not among them. Raises WorkloadError
    that names file, line and column.
    """

    def __init__(
        self,
        *,
        path: str,
        format: str = "auto",  # noqa: A002 (the setting's name)
        min_tokens: int = 1,
        max_prompt_tokens: int | None = None,
        max_total_tokens: int | None = None,
        on_bad_row: str = "fail",
        failed_requests: str = "drop",
        output_tokens: int | None = None,
    ) -> None:
        least = count("min_tokens of length pairs", min_tokens, 1, MAX_TOKENS, "tokens", "use 1")
        longest = _limit("max_prompt_tokens of length pairs", max_prompt_tokens)
        total = _limit("max_total_tokens of length pairs", max_total_tokens)
        self._met = tally(_OWNER, on_bad_row, failed_requests, output_tokens)
        self.path = find_trace(f"{_OWNER}.path", path, folders=True)
        with reading(self.path):
            self._format = choose(f"{_OWNER}.format", format, self.path)
            pairs = self._read()
        if not len(pairs):
            why = why_none(self._met)
            raise WorkloadError(f"{self.path}: no pairs of lengths are in the file; {why}.")
        prompts, outputs = pairs.T
        chosen = (pairs.min(axis=1) >= least) & (prompts <= longest) & (prompts + outputs <= total)
        if not chosen.any():
            limits = "widen min_tokens, max_prompt_tokens and max_total_tokens"
            outside = f"all {len(pairs):,} are outside the limits; {limits}"
            raise WorkloadError(f"{self.path}: no pairs of lengths are left: {outside}.")
        self.left_out = int((~chosen).sum())
        self.prompts, self.outputs = prompts[chosen], outputs[chosen]
        self.longest_prompt_tokens = int(self.prompts.max())

    def trace_facts(self) -> dict[str, Any]:
        """What was read of the file and what was left out, for previews and summaries."""
        return {
            "file": self.path.name,
            "format": self._format.name,
            "rows": self._met.rows,
            "requests": len(self.prompts),
            "skipped_rows": self._met.skipped,
            "first_skipped_row": self._met.first_skipped,
            "failed_requests": self._met.failed,
            "silent_conversations": self._met.silent,
            "failed_requests_are": "kept" if self._met.keep_failed else "dropped",
            "outside_limits": self.left_out,
            "tokens": "estimated" if self._format.estimates_tokens else "recorded",
        }

    def draw(
        self, rng: np.random.Generator, size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Prompts and outputs in tokens of `size` pairs."""
        drawn = rng.integers(len(self.prompts), size=size)
        return self.prompts[drawn], self.outputs[drawn]

    def _read(self) -> NDArray[np.int64]:
        rows = self._format.rows(self.path, self._met)
        lengths = (tokens for row in rows for tokens in (row.prompt_tokens, row.output_tokens))
        return np.fromiter(lengths, dtype=np.int64).reshape(-1, 2)


def _limit(setting: str, value: int | None) -> int:
    if value is None:
        return 2 * MAX_TOKENS
    return count(setting, value, 1, MAX_TOKENS, "tokens", "leave it null for no limit")
