"""A sampler's tensors: their peak and what stays, by hand."""

from __future__ import annotations

from tests.bench.sources.support import job, settings

VOCAB = 32_000
# Bytes an element: logits 4, sorted 4, order 8, their probabilities 4 and the cumulative sum 4.
PEAK = 24
KEPT = 4


def test_probabilities_stay_until_the_next_step_has_sampled() -> None:
    found = job("held_by_step", source=settings("batch_sizes"), steps=3, sequences=2)
    assert found["held"] == [2 * VOCAB * KEPT] * 3
    peaks = [2 * VOCAB * PEAK, 2 * VOCAB * (PEAK + KEPT), 2 * VOCAB * (PEAK + KEPT)]
    assert found["peaks"] == peaks


def test_nothing_stays_where_nothing_is_kept() -> None:
    source = settings("batch_sizes", kept_steps=0)
    assert job("held_by_step", source=source, steps=2)["held"] == [0, 0]


def test_the_step_of_the_most_rows_is_set_aside() -> None:
    found = job("held_by_step", source=settings("batch_sizes", kept_steps=2), steps=1)
    assert found["planned"] == 8 * VOCAB * (PEAK + 2 * KEPT)


def test_a_step_without_room_samples_without() -> None:
    source = settings("batch_sizes", kept_steps=0)
    planned = 8 * VOCAB * PEAK
    found = job("held_by_step", source=source, steps=3, sequences=9, limit=0)
    assert planned < 9 * VOCAB * PEAK
    assert (found["held"], found["refused"]) == ([0] * 3, 3)
    assert max(found["peaks"]) <= planned
