"""Lengths by their quantiles: a table of percentiles, as fits and papers give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.lengths.base import check_bounds, whole_tokens
from workloads.settings import MAX_TOKENS, count, number, refusal

_EXAMPLE = "give some such as {0: 2, 0.5: 1020, 0.99: 4052, 1: 14050}"


class QuantileLengths:
    """The quantile function goes straight from each of `quantiles` to the next: {probability:
    tokens}, from probability 0 (the shortest length) to 1 (the longest); results are rounded.

    With {0: 2, 0.5: 1020, 1: 14050} half of all lengths are uniform from 2 to 1,020 and half from
    1,020 to 14,050. The mean is the mean of the straight lines: between whole numbers, rounding
    moves as much up as down.
    """

    def __init__(self, *, quantiles: Mapping[float, int]) -> None:
        table = _check_table(quantiles)
        self._shares = np.array(list(table), dtype=np.float64)
        self._tokens = np.array(list(table.values()), dtype=np.float64)
        bounds = int(self._tokens[0]), int(self._tokens[-1])
        self.min_tokens, self.max_tokens = check_bounds("quantile lengths", *bounds)
        means = (self._tokens[1:] + self._tokens[:-1]) / 2
        self.mean_tokens = float(np.diff(self._shares) @ means)

    def share_above(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        below: NDArray[np.float64] = np.interp(tokens + 0.5, self._tokens, self._shares)
        return 1 - below

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        lengths = np.interp(rng.random(size), self._shares, self._tokens)
        return whole_tokens(lengths, self.min_tokens, self.max_tokens)


def _as_number(key: Any) -> Any:
    """The number that a text stands for: where a configuration went through JSON, keys are text."""
    try:
        return float(key) if isinstance(key, str) else key
    except ValueError:
        return key


def _check_table(quantiles: Any) -> dict[float, int]:
    """The table in order of probability. Raises WorkloadError."""
    name = "quantiles of quantile lengths"
    if not isinstance(quantiles, Mapping):
        raise refusal(name, quantiles, "a mapping of probabilities to tokens", _EXAMPLE)
    table = {}
    for key, tokens in quantiles.items():
        unit, fix = "(a share of lengths)", "0.5 is the median"
        share = number(f"A probability in {name}", _as_number(key), 0, 1, unit, fix)
        table[share] = count(f"The quantile {key} in {name}", tokens, 1, MAX_TOKENS, "tokens", fix)
    table = dict(sorted(table.items()))
    if not {0, 1} <= table.keys():
        shares = ", ".join(f"{share:g}" for share in table) or "none"
        fix = "add the shortest length as 0 and the longest as 1"
        raise refusal(f"The list of probabilities in {name}", shares, "from 0 to 1", fix)
    if list(table.values()) != sorted(table.values()):
        fix = "a larger probability cannot have a smaller quantile"
        raise refusal(name, table, "in ascending order of tokens", fix)
    return table
