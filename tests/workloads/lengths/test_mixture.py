from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from workloads.base import WorkloadError
from workloads.lengths.fixed import FixedLength
from workloads.lengths.gamma import GammaLengths
from workloads.lengths.mixture import MixtureLengths
from workloads.lengths.uniform import UniformLengths

SHORT, LONG = UniformLengths(min_tokens=1, max_tokens=9), FixedLength(tokens=500)


def part(weight: Any, lengths: Any = SHORT) -> dict[str, Any]:
    return {"weight": weight, "lengths": lengths}


def test_components_are_chosen_in_proportion_to_their_weights() -> None:
    lengths = MixtureLengths(components=[part(3), part(1, LONG)])
    drawn = lengths.draw(np.random.default_rng(0), 100_000)
    # binomial deviation 0.0014; 4 of them
    assert (drawn == 500).mean() == pytest.approx(0.25, abs=0.0056)
    assert set(drawn.tolist()) == {*range(1, 10), 500}
    assert lengths.mean_tokens == pytest.approx((3 * 5 + 500) / 4)
    assert (lengths.min_tokens, lengths.max_tokens) == (1, 500)


def test_a_mixture_of_one_is_that_one() -> None:
    alone = GammaLengths(mean_tokens=50, cv=1, max_tokens=400)
    lengths = MixtureLengths(components=[part(7, alone)])
    n = np.arange(0, 401)
    assert lengths.share_above(n) == pytest.approx(alone.share_above(n))


def test_mixtures_mix_mixtures() -> None:
    inner = MixtureLengths(components=[part(1), part(1, LONG)])
    outer = MixtureLengths(components=[part(1, inner), part(1, LONG)])
    drawn = outer.draw(np.random.default_rng(0), 10_000)
    assert (drawn == 500).mean() == pytest.approx(0.75, abs=4 * np.sqrt(0.75 * 0.25 / 10_000))


@pytest.mark.parametrize(
    ("components", "message"),
    [
        (None, "components of a mixture is null; it must be a list of at least one component"),
        ([], r"components of a mixture is \[\]"),
        ([SHORT], "component 1 of a mixture is .* a mapping of weight and lengths"),
        ([part(1), {"weight": 1}], "component 2 of a mixture is"),
        ([part(0)], "weight of component 1 of a mixture is 0; .*; leave a component out instead"),
        (
            [part(1, 500)],
            "lengths of component 1 of a mixture is 500; it must be a distribution of lengths",
        ),
        (
            [part(1), part(1, FixedLength(tokens=2_000_000))],
            "max_tokens - min_tokens of a mixture is 1999999; it must be at most 1,048,576 tokens",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(components: Any, message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        MixtureLengths(components=components)
