"""Gaps between tokens counted in bins: as many as there were, each known to within 0.5 %."""

from __future__ import annotations

import numpy as np
import pytest

from bench.engine.sequence import Sequence
from bench.metrics.inter_token import BinnedGaps, InterTokenGaps, weighted_bins
from bench.metrics.latency import distribution
from workloads.base import Request


def feed(gaps: InterTokenGaps, *, forget: bool) -> None:
    """3,000 steps of 200 sequences that come, are preempted and go, the same each time."""
    rng = np.random.default_rng(0)
    open_, now = {}, 0.0
    for step in range(3000):
        now += float(rng.lognormal(-4, 0.5))
        gaps.step_ended(now)
        if step % 15 == 0:
            open_[step] = Sequence(Request(step, 0.0, 1, 1), now)
        for sequence in open_.values():
            if rng.random() < 0.02:
                continue  # it waits in this step
            if sequence.last_step != step - 1:
                gaps.run_broken(sequence, step, now)
            sequence.give_token(step, now)
        for number in [number for number in open_ if rng.random() < 0.02]:
            if open_[number].first_token_s is not None:
                gaps.completed(open_[number])
            del open_[number]
        if forget and step % 100 == 0:
            assert isinstance(gaps, BinnedGaps)
            first = (s.oldest_step for s in open_.values() if s.oldest_step >= 0)
            gaps.forget(min(first, default=step + 1))


def test_binned_gaps_are_the_exact_ones_to_half_a_percent() -> None:
    exact, binned = InterTokenGaps(), BinnedGaps()
    feed(exact, forget=False)
    feed(binned, forget=True)
    found, expected = distribution(*binned.weighted()), distribution(*exact.weighted())
    assert found["count"] == expected["count"]
    for name in ("mean", "p50", "p90", "p95", "p99"):
        assert found[name] == pytest.approx(expected[name], rel=0.0051)


def test_steps_of_the_past_take_no_memory() -> None:
    gaps = BinnedGaps()
    feed(gaps, forget=True)
    assert len(gaps._ends) < 600  # of 3,000; sequences live for 50 steps on average


def test_bins_of_several_engines_add_up() -> None:
    one, other = BinnedGaps(), BinnedGaps()
    feed(one, forget=True)
    feed(other, forget=False)
    lengths, counts = weighted_bins([one.bins(), other.bins()])
    alone_lengths, alone_counts = one.weighted()
    np.testing.assert_array_equal(lengths, alone_lengths)
    np.testing.assert_array_equal(counts, 2 * alone_counts)
