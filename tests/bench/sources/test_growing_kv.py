"""A cache that grows by reallocation: old and new buffers, by hand."""

from __future__ import annotations

from tests.bench.sources.support import job, settings

TOKEN = 2 * 16 * 8 * 64 * 2


def test_a_longer_buffer_is_taken_while_the_old_one_is_there() -> None:
    found = job("held_by_step", source=settings("growing_kv"), steps=4)
    assert found["held"] == [TOKEN * n for n in (10, 11, 12, 13)]
    assert found["peaks"] == [TOKEN * n for n in (10, 10 + 11, 11 + 12, 12 + 13)]
    assert found["counts"] == {"reallocations": 3, "given_up": 0}
    assert found["left"] == [0]


def test_it_grows_every_so_many_tokens() -> None:
    source = settings("growing_kv", every_tokens=4, layout="sequence")
    found = job("held_by_step", source=source, steps=8)
    assert found["held"] == [TOKEN * n for n in (12, 12, 12, 16, 16, 16, 16, 20)]


def test_a_cache_that_is_refused_is_given_up() -> None:
    found = job("held_by_step", source=settings("growing_kv"), steps=4, limit=22 * TOKEN)
    assert found["held"] == [10 * TOKEN, 11 * TOKEN, 0, 0]  # 11 + 12 do not fit
    assert found["counts"] == {"reallocations": 1, "given_up": 1}
