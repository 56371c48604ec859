"""A cache that grows by reallocation: old and new buffers, by hand."""

from __future__ import annotations

from tests.bench.sources.support import job, settings

TENSORS = 2 * 16  # K and V of 16 layers
PLANE = 8 * 64 * 2  # of a token in one of them
TOKEN = TENSORS * PLANE


def test_a_longer_tensor_is_taken_while_the_old_one_is_there_one_after_another() -> None:
    found = job("held_by_step", source=settings("growing_kv"), steps=4)
    assert found["held"] == [TOKEN * n for n in (10, 11, 12, 13)]
    # At the last tensor's turn all others are of n tokens, and its old one is still there.
    assert found["peaks"] == [10 * TOKEN, *(n * TOKEN + (n - 1) * PLANE for n in (11, 12, 13))]
    assert found["counts"] == {"reallocations": 3, "given_up": 0}
    assert found["left"] == [0]


def test_it_grows_every_so_many_tokens() -> None:
    source = settings("growing_kv", every_tokens=4, layout="sequence")
    found = job("held_by_step", source=source, steps=8)
    assert found["held"] == [TOKEN * n for n in (12, 12, 12, 16, 16, 16, 16, 20)]


def test_one_tensor_in_all_is_there_twice() -> None:
    found = job("held_by_step", source=settings("growing_kv", layout="sequence"), steps=3)
    assert found["peaks"] == [TOKEN * n for n in (10, 10 + 11, 11 + 12)]


def test_a_cache_that_is_refused_is_given_up_with_what_was_new_and_what_was_left() -> None:
    """A tensor of 12 tokens takes 12 planes beside 11 tokens and a plane for each tensor that was
    replaced before it: the limit has room for that 16 times of 32."""
    limit = 11 * TOKEN + 15 * PLANE + 12 * PLANE
    found = job("held_by_step", source=settings("growing_kv"), steps=4, limit=limit)
    assert found["held"] == [10 * TOKEN, 11 * TOKEN, 0, 0]
    assert found["peaks"][-1] == limit
    assert (found["refused"], found["counts"]) == (1, {"reallocations": 1, "given_up": 1})
