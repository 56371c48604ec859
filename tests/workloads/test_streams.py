from __future__ import annotations

import pytest

from workloads.base import WorkloadError
from workloads.streams import stream


def test_a_purpose_has_its_own_numbers_whatever_else_is_drawn() -> None:
    alone = stream(7, "arrivals").random(5).tolist()
    stream(7, "kinds").random(1000)
    assert stream(7, "arrivals").random(5).tolist() == alone
    assert stream(7, "kinds").random(5).tolist() != alone
    assert stream(8, "arrivals").random(5).tolist() != alone


def test_zero_is_a_seed_that_gives_the_same_numbers_each_time() -> None:
    assert stream(0, "a").random() == stream(0, "a").random()
    assert stream(0, "a").random() != stream(1, "a").random()


@pytest.mark.parametrize("seed", [-1, 1.0, True, None, "0", 2**64])
def test_a_seed_that_is_none_is_refused(seed: object) -> None:
    with pytest.raises(WorkloadError, match=r"^seed is "):
        stream(seed, "arrivals")  # type: ignore[arg-type]
