"""However a workload is split, all of it is sent once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bench.shares import Shares
from tests.bench.load.clients import request


@given(st.integers(0, 50), st.integers(1, 9), st.integers(1, 4))
def test_workers_together_send_what_one_does(total: int, users: int, workers: int) -> None:
    requests = [request(number) for number in range(total)]
    sent = []
    for worker in range(workers):
        mine = range(users * worker // workers, users * (worker + 1) // workers)
        shares = Shares(requests, users, mine)
        for user in mine:
            own = [one.request_id for one in shares.of(user)]
            assert own == list(range(user, total, users))
            sent += own
    assert sorted(sent) == list(range(total))


def test_a_share_is_drawn_no_further_than_it_is_asked_for() -> None:
    drawn = []

    def endless() -> object:
        number = 0
        while True:
            drawn.append(number)
            yield request(number)
            number += 1

    own = Shares(endless(), 3, [1]).of(1)  # type: ignore[arg-type]
    assert [next(own).request_id, next(own).request_id] == [1, 4]
    assert drawn == [0, 1, 2, 3, 4]


def test_users_of_one_worker_take_turns_as_they_like() -> None:
    shares = Shares([request(number) for number in range(6)], 2, [0, 1])
    first, second = shares.of(0), shares.of(1)
    order = [next(second), next(second), next(first), next(second), next(first), next(first)]
    assert [one.request_id for one in order] == [1, 3, 0, 5, 2, 4]
