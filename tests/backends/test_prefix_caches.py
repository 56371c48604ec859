"""What holds of every prefix cache, whatever it finds prefixes by."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from backends.base import Demand
from backends.paged import Paged
from backends.paged_prefix import PagedPrefix
from backends.paged_radix import PagedRadix
from tests.backends.prefixes import ids, layout

CACHES = [PagedPrefix, PagedRadix]


@pytest.fixture(params=CACHES, ids=["hash", "radix"])
def backend(request: pytest.FixtureRequest) -> Paged:
    make: Callable[[], Paged] = request.param
    made = make()
    made.start(layout(11, 16))
    return made


def test_equal_tokens_after_different_ones_are_different(backend: Paged) -> None:
    tokens = ids((1, 16), (2, 16))
    assert backend.reserve(0, 32, 32, Demand(32, 1, tokens)) is not None
    backend.free(0, 32)
    backend.check_integrity()
    assert backend.lookup(100, Demand(100, 1, ids((3, 16), (2, 16)))) == 0
    assert backend.lookup(100, Demand(100, 1, ids((1, 16), (2, 16)))) == 32


def test_tenants_do_not_share(backend: Paged) -> None:
    tokens = ids((7, 64))
    backend.reserve(0, 32, 32, Demand(32, 1, tokens, cache_salt="a"))
    backend.free(0, 32)
    assert backend.lookup(64, Demand(64, 1, tokens, cache_salt="a")) == 32
    assert backend.lookup(64, Demand(64, 1, tokens, cache_salt="b")) == 0
    assert backend.lookup(64, Demand(64, 1, tokens)) == 0
