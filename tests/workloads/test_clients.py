"""Who leaves, and how, and who reads slowly, is drawn apart from all else."""

from __future__ import annotations

import inspect
import itertools
from dataclasses import replace
from typing import Any

import pytest

from bench.turns import turns
from workloads.arrivals.poisson import PoissonArrivals
from workloads.base import PATIENT, Client, Request, WorkloadError
from workloads.clients import LEAVING, Clients
from workloads.generated import GeneratedWorkload
from workloads.kinds.base import Kind
from workloads.kinds.sessions import MultiTurn
from workloads.kinds.single import SingleTurn
from workloads.lengths.fixed import FixedLength
from workloads.lengths.geometric import GeometricLengths
from workloads.lengths.uniform import UniformLengths
from workloads.streams import stream

COUNT = 8000
HUNDRED, THREE = FixedLength(tokens=100), FixedLength(tokens=3)
MIXED = {"leave_share": 0.3, "leave_after_s": [1.0, 2.0], "leave_after_tokens": [4, 8],
         "slow_share": 0.1}  # fmt: skip


def drawn(output_tokens: int = 100, **settings: Any) -> list[Client]:
    draw = Clients(**(settings or MIXED)).drawn(stream(0, "clients"))
    return [draw(Request(number, 0.0, 1000, output_tokens)) for number in range(COUNT)]


def workload(
    clients: Clients | None = None, max_total_tokens: int | None = None, **kinds: Kind
) -> list[Request]:
    made = GeneratedWorkload(
        kinds=kinds,
        arrivals=PoissonArrivals(),
        rate_rps=1.0,
        num_requests=400,
        max_total_tokens=max_total_tokens,
        clients=clients,
    )
    return list(made.requests(0))


def test_shares_are_kept() -> None:
    """Within four standard deviations of a binomial draw."""
    clients = drawn()
    leaving = [client.leave for client in clients if client.leave is not None]
    assert len(leaving) / COUNT == pytest.approx(0.3, abs=4 * (0.3 * 0.7 / COUNT) ** 0.5)
    slow = sum(client.tokens_per_s == 5.0 for client in clients)
    assert slow / COUNT == pytest.approx(0.1, abs=4 * (0.1 * 0.9 / COUNT) ** 0.5)
    ways = [leave.kind for leave in leaving]
    for way in LEAVING:
        error = (0.25 * 0.75 / len(ways)) ** 0.5
        assert ways.count(way) / len(ways) == pytest.approx(0.25, abs=4 * error)


def test_moments_are_in_their_ranges() -> None:
    leaving = [client.leave for client in drawn() if client.leave is not None]
    by_way = {way: [leave for leave in leaving if leave.kind == way] for way in LEAVING}
    assert {leave.after_tokens for leave in by_way["after_tokens"]} == {4, 5, 6, 7, 8}
    assert all(leave.after_s is None for leave in by_way["after_tokens"])
    for way, least_s, most_s, tokens in (
        ("after_s", 1.0, 2.0, None),
        ("before_first_token", 0.0, 0.05, 1),
        ("in_prefill", 0.0, 0.1, 1),  # 1,000 tokens at 0.1 ms each
    ):
        moments_s = [leave.after_s for leave in by_way[way] if leave.after_s is not None]
        assert least_s <= min(moments_s) < least_s + 0.05 * (most_s - least_s)
        assert most_s - 0.05 * (most_s - least_s) < max(moments_s) < most_s
        assert {leave.after_tokens for leave in by_way[way]} == {tokens}


def test_nobody_leaves_an_answer_that_is_whole() -> None:
    clients = drawn(3, leave_share=1.0, leave=["after_tokens"], leave_after_tokens=[4, 8])
    assert {client.leave.after_tokens for client in clients if client.leave} == {2}
    assert set(drawn(1, leave_share=1.0, leave=["after_tokens"])) == {PATIENT}


def test_one_setting_leaves_what_others_decide_alone() -> None:
    for one, other in zip(drawn(), drawn(**MIXED | {"slow_share": 0.5}), strict=True):
        assert one.leave == other.leave
        assert one.tokens_per_s is None or other.tokens_per_s is not None
    for one, other in zip(drawn(), drawn(**MIXED | {"leave_share": 0.6}), strict=True):
        assert one.tokens_per_s == other.tokens_per_s
        assert one.leave is None or one.leave == other.leave


def test_clients_leave_all_other_draws_alone() -> None:
    before = workload(one=SingleTurn(prompt=HUNDRED, output=THREE))
    after = workload(one=SingleTurn(prompt=HUNDRED, output=THREE, clients=Clients(leave_share=0.5)))
    assert {each.client for each in before} == {PATIENT}
    assert [replace(each, client=PATIENT) for each in after] == before
    assert 0.3 < sum(each.client is not PATIENT for each in after) / len(after) < 0.7


def test_turns_that_come_to_nothing_leave_later_clients_alone() -> None:
    kind = MultiTurn(
        turns=GeometricLengths(mean_tokens=3, max_tokens=20),
        message=UniformLengths(min_tokens=5, max_tokens=60),
        answer=UniformLengths(min_tokens=10, max_tokens=200),
        think_time_s=1.0,
    )
    leaving = Clients(leave_share=0.5)
    free, cut = (
        {turn.request_id: turn.client for turn in turns(workload(leaving, most, chat=kind))}
        for most in (None, 300)
    )
    assert free.keys() != cut.keys()  # both have 400 turns
    both = free.keys() & cut.keys()
    assert len(both) > 100
    assert all(free[number] == cut[number] for number in both)


def test_a_kinds_own_clients_come_before_the_workloads() -> None:
    requests = workload(
        Clients(slow_share=1.0),
        one=SingleTurn(prompt=HUNDRED, output=THREE, share=0.5, clients=Clients(leave_share=1.0)),
        two=SingleTurn(prompt=HUNDRED, output=THREE, share=0.5),
    )
    for each in requests:
        assert (each.client.leave is not None) == (each.kind == "one")
        assert (each.client.tokens_per_s is not None) == (each.kind == "two")


def test_each_turn_of_a_session_has_a_client_of_its_own() -> None:
    sessions = workload(
        Clients(leave_share=0.5),
        chat=MultiTurn(turns=THREE, message=HUNDRED, answer=HUNDRED, think_time_s=1.0),
    )
    leaves = [turn.client.leave is not None for turn in turns(sessions)]
    assert len(leaves) == 400
    assert len(set(itertools.pairwise(leaves))) == 4  # independent: all combinations occur
    assert sum(leaves) == pytest.approx(200, abs=4 * 10)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"leave_share": 1.5}, r"^leave_share of clients is 1\.5; .* from 0 to 1"),
        ({"leave": []}, r"^leave of clients is \[\]; it must be a list of some of after_s, "),
        ({"leave": ["bored"]}, r"^leave of clients is \['bored'\]"),
        ({"leave": "after_s"}, r"^leave of clients is 'after_s'"),
        ({"leave_after_s": [2, 1]}, r"^leave_after_s of clients is \[2, 1\]; .* smaller first"),
        ({"leave_after_s": 3}, r"^leave_after_s of clients is 3"),
        ({"leave_after_tokens": [0, 1]}, r"^leave_after_tokens of clients is \[0, 1\]"),
        ({"leave_after_tokens": [1.5, 2]}, r"^leave_after_tokens of clients is \[1\.5, 2\]"),
        ({"leave_before_first_token_s": -1}, r"^leave_before_first_token_s of clients is -1"),
        ({"leave_prefill_s_per_token": None}, r"^leave_prefill_s_per_token of clients is null"),
        ({"slow_share": True}, r"^slow_share of clients is True"),
        ({"slow_tokens_per_s": 0}, r"^slow_tokens_per_s of clients is 0"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        Clients(**changed)


def test_a_workloads_clients_are_clients() -> None:
    with pytest.raises(WorkloadError, match=r"^workload\.clients is 3; it must be null or clients"):
        workload(3, one=SingleTurn(prompt=HUNDRED, output=THREE))  # type: ignore[arg-type]
    kind = SingleTurn(prompt=HUNDRED, output=THREE, clients=3)  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match=r"^workload\.kinds\.one\.clients is 3"):
        workload(one=kind)


def test_arguments_are_by_keyword_only() -> None:
    parameters = list(inspect.signature(Clients.__init__).parameters.values())[1:]
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.KEYWORD_ONLY}
