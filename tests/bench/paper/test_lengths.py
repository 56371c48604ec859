"""Means after a clip, against what is drawn; and the means before it that ShareGPT is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bench.paper.lengths import has_spread, mean_after_clip, mean_before_clip
from workloads.lengths.gamma import GammaLengths
from workloads.lengths.lognormal import LognormalLengths

KINDS = Path(__file__).parents[3] / "conf" / "workload" / "kinds"
CLASSES = {kind.__name__: kind for kind in (GammaLengths, LognormalLengths)}
PUBLISHED_TOKENS = {"prompt": 161.31, "output": 337.99}
DRAWS = 2_000_000
"""Standard error at most a thousandth of a mean."""


def settings(kind: str, part: str) -> dict[str, Any]:
    lengths: dict[str, Any] = yaml.safe_load((KINDS / f"{kind}.yaml").read_text())[part]
    return lengths


def drawn_mean(lengths: dict[str, Any]) -> float:
    chosen = dict(lengths)
    kind = CLASSES[chosen.pop("_target_").rpartition(".")[2]]
    return float(kind(**chosen).draw(np.random.default_rng(1), DRAWS).mean())


@pytest.mark.parametrize("kind", ["sharegpt", "alpaca", "code"])
@pytest.mark.parametrize("part", ["prompt", "output"])
@pytest.mark.parametrize("factor", [0.75, 1.0, 1.25])
def test_the_mean_after_the_clip_is_that_of_what_is_drawn(
    kind: str, part: str, factor: float
) -> None:
    lengths = settings(kind, part)
    lengths["cv"] *= factor
    # 4 standard errors; a clip only narrows
    error = 4 * lengths["mean_tokens"] * lengths["cv"] / np.sqrt(DRAWS)
    assert mean_after_clip(lengths) == pytest.approx(drawn_mean(lengths), abs=error)


@pytest.mark.parametrize(("part", "tokens"), PUBLISHED_TOKENS.items())
def test_sharegpt_has_the_published_means_after_the_clip(part: str, tokens: float) -> None:
    lengths = settings("sharegpt", part)
    assert drawn_mean(lengths) == pytest.approx(tokens, rel=0.005)
    assert mean_before_clip(lengths, tokens) == pytest.approx(lengths["mean_tokens"], abs=0.005)


@pytest.mark.parametrize("part", PUBLISHED_TOKENS)
@pytest.mark.parametrize("factor", [0.75, 1.25])
def test_a_spread_that_changes_leaves_the_published_mean(part: str, factor: float) -> None:
    lengths = settings("sharegpt", part)
    lengths["cv"] *= factor
    lengths["mean_tokens"] = mean_before_clip(lengths, PUBLISHED_TOKENS[part])
    assert drawn_mean(lengths) == pytest.approx(PUBLISHED_TOKENS[part], rel=0.005)


def test_only_lengths_with_a_cv_have_a_spread() -> None:
    assert has_spread(settings("alpaca", "output"))
    assert not has_spread({"_target_": "workloads.lengths.fixed.FixedLength", "tokens": 3})
    assert not has_spread(None)
