"""How far modelled operator times are from measured ones, by number of tokens."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from bench.costs.model import CostModel
from bench.costs.profiles import ELEMENTWISE_OPERATORS, LINEAR_OPERATORS, Floats, Profile

# Half-open ranges of tokens in a step.
BANDS = {
    "<= 16": (1, 17),
    "17-64": (17, 65),
    "65-256": (65, 257),
    "257-1,024": (257, 1025),
    "> 1,024": (1025, 1 << 62),
}
LINEAR = tuple(LINEAR_OPERATORS.values())
LAYER = LINEAR + tuple(ELEMENTWISE_OPERATORS.values())


def band_errors(
    profile: Profile, costs: CostModel, operators: Collection[str]
) -> dict[str, float | None]:
    """Median over a band's profiled token counts of |modelled / measured - 1|, where both are
    the summed times of `operators` in one layer; None for a band without any."""
    modelled, measured = _summed(profile, costs, operators)
    error = np.abs(modelled / measured - 1)
    return {
        band: float(np.median(error[inside])) if inside.any() else None
        for band, inside in _inside_bands(profile.tokens)
    }


def band_weights(tokens: npt.NDArray[np.int64]) -> Floats:
    """A weight for each profiled token count that makes every band that has any weigh 1."""
    weights = np.zeros(len(tokens))
    for _, inside in _inside_bands(tokens):
        if inside.any():
            weights[inside] = 1 / inside.sum()
    return weights


def _inside_bands(
    tokens: npt.NDArray[np.int64],
) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    return [(band, (tokens >= low) & (tokens < high)) for band, (low, high) in BANDS.items()]


def _summed(
    profile: Profile, costs: CostModel, operators: Collection[str]
) -> tuple[Floats, Floats]:
    by_tokens = [costs.layer_operator_s(int(tokens)) for tokens in profile.tokens]
    modelled = np.array([sum(seconds[name] for name in operators) for seconds in by_tokens])
    measured = np.sum([profile.seconds[name] for name in operators], axis=0)
    return modelled, measured
