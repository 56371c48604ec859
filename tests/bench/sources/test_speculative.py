"""Draft slots: those of tokens that were said stay, and rounds are as far apart as their tokens."""

from __future__ import annotations

from tests.bench.sources.support import job, settings

SLOT = 2 * 16 * 8 * 64 * 2  # K and V, 16 layers, 8 heads of 64 numbers of 2 bytes
PROBABILITIES = 4 * 32_000 * 4  # 4 drafts, the small model's vocabulary, 32 bits


def test_rejected_drafts_are_given_back_at_once() -> None:
    """A slot stays a round: that of the token said last, which drafting began with."""
    found = job("held_by_step", source=settings("speculative", acceptance=0), steps=6)
    assert found["held"] == [SLOT * n for n in range(6)]
    assert found["peaks"][0] == 0  # the prompt's step drafts nothing
    assert found["peaks"][1:] == [(n + 1 + 4) * SLOT + PROBABILITIES for n in range(5)]
    assert found["counts"] == {"rounds": 5, "drafted_tokens": 20, "accepted_tokens": 0}


def test_a_round_comes_after_all_that_the_one_before_it_said() -> None:
    """All four drafts and the token after them: a round every five steps, from the second on."""
    found = job("held_by_step", source=settings("speculative", acceptance=1), steps=12)
    slots = [0, 5, 5, 5, 5, 5, 10, 10, 10, 10, 10, 15]
    assert found["held"] == [SLOT * n for n in slots]
    assert found["counts"] == {"rounds": 3, "drafted_tokens": 12, "accepted_tokens": 12}
    assert found["left"] == [0]


def test_slots_are_those_of_the_tokens_said() -> None:
    """A round before the n-th token keeps slots up to n + 4 at most; until the next one there are
    as many as tokens said, or more."""
    held = job("accepted", seed=0)
    assert all(SLOT * n <= slots <= SLOT * (n + 4) for n, slots in enumerate(held) if n)
    assert held != job("accepted", seed=1)
    assert held == job("accepted", seed=0)


def test_a_round_without_room_for_the_probabilities_is_skipped() -> None:
    found = job("held_by_step", source=settings("speculative"), steps=4, limit=PROBABILITIES - 1)
    assert (found["held"], found["refused"]) == ([0] * 4, 3)
    assert found["counts"]["rounds"] == 0
