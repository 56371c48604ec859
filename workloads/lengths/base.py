"""The contract of a length distribution, and the checks that every one shares."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from workloads.settings import MAX_TOKENS, count, number, refusal


@runtime_checkable
class Lengths(Protocol):
    """Lengths in tokens, each in [min_tokens, max_tokens], with 1 <= min_tokens."""

    min_tokens: int
    max_tokens: int

    @property
    def mean_tokens(self) -> float:
        """The mean of what is drawn, so after rounding and clipping; by calculation."""
        ...

    def share_above(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """P(length > n) of each whole number n of `tokens`; by calculation."""
        ...

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """`size` independent lengths. Two draws in a row give what one draw of both would."""
        ...


@runtime_checkable
class Pairs(Protocol):
    """Lengths of prompts and outputs that belong together, each at least 1 token."""

    longest_prompt_tokens: int

    def draw(
        self, rng: np.random.Generator, size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Prompts and outputs of `size` independent pairs. Two draws in a row give what one draw
        of both would."""
        ...


def check_lengths(setting: str, value: Any) -> Lengths:
    """`value`, or WorkloadError unless it is a distribution of lengths."""
    if not isinstance(value, Lengths):
        one = f"{{_target_: workloads.lengths.fixed.FixedLength, tokens: {value}}}"
        raise refusal(setting, value, "a distribution of lengths", f"for one length: {one}")
    return value


def whole_tokens(lengths: NDArray[np.float64], least: int, most: int) -> NDArray[np.int64]:
    """Rounded to whole tokens and clipped: what lies outside is moved to the nearest bound, so
    the mean moves by what was cut (workloads/lengths/rounded.py says where to)."""
    return np.clip(np.rint(lengths), least, most).astype(np.int64)


def check_bounds(kind: str, min_tokens: Any, max_tokens: Any) -> tuple[int, int]:
    """The bounds of a distribution. Raises WorkloadError unless 1 <= min <= max."""
    fix = "a prompt and an output have at least 1 token"
    least = count(f"min_tokens of {kind}", min_tokens, 1, MAX_TOKENS, "tokens", fix)
    fix = "raise max_tokens or lower min_tokens"
    return least, count(f"max_tokens of {kind}", max_tokens, least, MAX_TOKENS, "tokens", fix)


def check_mean(kind: str, mean_tokens: Any, bounds: tuple[int, int]) -> float:
    """The mean before the clip. Raises WorkloadError unless it lies within the bounds."""
    fix = "move the mean, or widen min_tokens and max_tokens"
    return number(f"mean_tokens of {kind}", mean_tokens, *bounds, "tokens", fix)


def check_cv(kind: str, cv: Any) -> float:
    """The coefficient of variation, standard deviation / mean. Raises WorkloadError."""
    if cv == 0 and not isinstance(cv, bool):
        raise refusal(f"cv of {kind}", cv, "above 0", "use FixedLength for lengths all alike")
    return number(f"cv of {kind}", cv, 0.001, 100, "(a ratio)", "cv is standard deviation / mean")
