"""Several distributions in one: each length comes from one of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads.lengths.base import Lengths, check_lengths
from workloads.settings import number, refusal

_WIDEST_TOKENS = 1 << 20


class _Component(NamedTuple):
    weight: float
    lengths: Lengths


class MixtureLengths:
    """A length from one of `components`, each {weight: number, lengths: distribution}, chosen in
    proportion to its weight.

    A draw takes one random number a length and looks it up in the distribution function of the
    whole mixture, a table of every length from the shortest to the longest: drawn from a component
    of its own each, a length would take as many random numbers as its component happens to need,
    and two draws in a row would not give what one gives. So a mixture is at most 1,048,576 tokens
    wide.
    """

    def __init__(self, *, components: Sequence[Mapping[str, Any]]) -> None:
        self._components = _check_components(components)
        self.min_tokens = min(each.lengths.min_tokens for each in self._components)
        self.max_tokens = max(each.lengths.max_tokens for each in self._components)
        width = self.max_tokens - self.min_tokens
        if width > _WIDEST_TOKENS:
            allowed = f"at most {_WIDEST_TOKENS:,} tokens"
            fix = "lower the max_tokens of its components"
            raise refusal("max_tokens - min_tokens of a mixture", width, allowed, fix)

    @cached_property
    def mean_tokens(self) -> float:
        return sum(each.weight * each.lengths.mean_tokens for each in self._components)

    def share_above(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        shares = np.zeros(len(tokens))
        for each in self._components:
            shares += each.weight * each.lengths.share_above(tokens)
        return shares

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        above = np.searchsorted(self._shares, rng.random(size), side="right")
        return self.min_tokens + above.astype(np.int64)

    @cached_property
    def _shares(self) -> NDArray[np.float64]:
        """P(length <= n) for n from min_tokens to max_tokens - 1."""
        shares = 1 - self.share_above(np.arange(self.min_tokens, self.max_tokens))
        return np.maximum.accumulate(shares)  # sums of roundings may fall by a last digit


def _check_components(value: Any) -> list[_Component]:
    """The components, their weights made to add up to 1. Raises WorkloadError."""
    name = "components of a mixture"
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        fix = "give some such as [{weight: 0.7, lengths: {_target_: ...}}, ...]"
        raise refusal(name, value, "a list of at least one component", fix)
    found = [_check_component(number_, each) for number_, each in enumerate(value, 1)]
    total = math.fsum(each.weight for each in found)
    return [each._replace(weight=each.weight / total) for each in found]


def _check_component(number_: int, value: Any) -> _Component:
    name = f"component {number_} of a mixture"
    if not isinstance(value, Mapping) or value.keys() != {"weight", "lengths"}:
        fix = "weights are relative: they need not add up to 1"
        raise refusal(name, value, "a mapping of weight and lengths", fix)
    fix = "leave a component out instead of giving it 0"
    weight = number(f"weight of {name}", value["weight"], 1e-9, 1e9, "(a weight, no unit)", fix)
    return _Component(weight, check_lengths(f"lengths of {name}", value["lengths"]))
