"""New K and V land in their slots and nowhere else, bit by bit."""

from __future__ import annotations

import pytest

from bench.gpu_check.kernel_cases import Case, name, variants
from tests.backends.kernels.conftest import Run
from tests.backends.kernels.jobs import store_errors

CONTEXTS, QUERIES = (1, 15, 16, 17, 40), (1, 15, 4, 17, 1)
FEW = list(variants(CONTEXTS, QUERIES, all_of_them=False))


@pytest.mark.parametrize("case", FEW, ids=name)
def test_tokens_land_in_their_slots(run: Run, case: Case) -> None:
    assert run(store_errors, case, ()) == []


def test_a_negative_slot_is_padding(run: Run) -> None:
    assert run(store_errors, Case(CONTEXTS, QUERIES), (0, 3, 37)) == []


def test_heads_of_no_power_of_two(run: Run) -> None:
    assert run(store_errors, Case(CONTEXTS, QUERIES, heads=(6, 3), head_dim=72), (5,)) == []


def test_no_tokens(run: Run) -> None:
    assert run(store_errors, Case((5,), (0,)), ()) == []
