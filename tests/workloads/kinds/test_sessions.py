from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from workloads.arrivals.constant import ConstantArrivals
from workloads.arrivals.poisson import PoissonArrivals
from workloads.base import Request, Source, WorkloadError
from workloads.generated import GeneratedWorkload
from workloads.kinds.sessions import MultiTurn
from workloads.lengths.fixed import FixedLength
from workloads.lengths.geometric import GeometricLengths
from workloads.lengths.uniform import UniformLengths
from workloads.shared_texts import SharedTexts
from workloads.tokens import output_ids, prompt_ids

SYSTEM_PROMPTS = SharedTexts(count=3, tokens=UniformLengths(min_tokens=50, max_tokens=90))


def make(**changed: Any) -> GeneratedWorkload:
    schedule = {"arrivals": PoissonArrivals(), "rate_rps": 2.0, "duration_s": 500.0}
    sessions: dict[str, Any] = {
        "turns": GeometricLengths(mean_tokens=3, max_tokens=30),
        "message": UniformLengths(min_tokens=5, max_tokens=60),
        "answer": UniformLengths(min_tokens=10, max_tokens=200),
        "think_time_s": 20.0,
        "system_prompts": SYSTEM_PROMPTS,
    }
    own = {name: value for name, value in changed.items() if name in MultiTurn.__slots__}
    others = {name: value for name, value in changed.items() if name not in own}
    kind = MultiTurn(**{**sessions, **own})
    return GeneratedWorkload(kinds={"chat": kind}, **{**schedule, **others})


def draw(seed: int = 0, **changed: Any) -> list[Request]:
    return list(make(**changed).requests(seed))


def turns(request: Request) -> Iterator[Request]:
    turn: Request | None = request
    while turn is not None:
        yield turn
        turn = turn.next_turn


def every_turn(sessions: list[Request]) -> list[Request]:
    return [turn for session in sessions for turn in turns(session)]


def test_a_turns_prompt_starts_with_all_that_was_said_before() -> None:
    session = max(draw(), key=lambda each: sum(1 for _ in turns(each)))
    before = None
    for turn in turns(session):
        ids = prompt_ids(turn, 32_000).tolist()
        assert len(ids) == turn.prompt_tokens
        if before is not None:
            said = [*prompt_ids(before, 32_000), *output_ids(before, 32_000)]
            assert ids[: len(said)] == said
            assert len(ids) - len(said) >= 5  # and a message of its own
        before = turn


def test_sessions_share_system_prompts_and_nothing_else() -> None:
    sessions = draw()
    used = Counter(session.prefix[0] for session in sessions)
    assert set(used) == set(SYSTEM_PROMPTS.segments("system_prompts/chat"))
    shares = np.array([used[text] for text in SYSTEM_PROMPTS.segments("system_prompts/chat")])
    # about 1,000 picks of weights 6/11, 3/11, 2/11: deviations below 16; 4 of them
    assert np.abs(shares - len(sessions) * np.array([6, 3, 2]) / 11).max() < 64
    one, other = [each for each in sessions if each.prefix == sessions[0].prefix][:2]
    start = one.prefix[0].tokens
    assert prompt_ids(one, 32_000)[:start].tolist() == prompt_ids(other, 32_000)[:start].tolist()
    assert prompt_ids(one, 32_000)[start] != prompt_ids(other, 32_000)[start]


def test_without_system_prompts_a_first_turn_is_its_message() -> None:
    assert all(session.prefix == () for session in draw(system_prompts=None))


def test_every_turn_has_a_number_of_its_own_and_sessions_come_in_order_of_time() -> None:
    sessions = draw()
    ids = [turn.request_id for turn in every_turn(sessions)]
    assert ids == list(range(len(ids)))
    times = [session.scheduled_s for session in sessions]
    assert times == sorted(times)
    assert times[0] == 0
    assert times[-1] < 500
    # Poisson of 2 sessions/s: 1,000, standard deviation 32; 4 of them
    assert len(sessions) == pytest.approx(1000, abs=127)


def test_turns_and_think_times_have_the_means_asked_for() -> None:
    sessions = draw(duration_s=2000.0)
    numbers = [sum(1 for _ in turns(session)) for session in sessions]
    # geometric of mean 3: standard deviation sqrt(6) = 2.45; about 4,000 sessions; 4 errors
    assert np.mean(numbers) == pytest.approx(3, abs=4 * 2.45 / 60)
    thinks = [turn.scheduled_s for session in sessions for turn in list(turns(session))[1:]]
    # exponential of mean 20 s, about 8,000 of them
    assert np.mean(thinks) == pytest.approx(20, abs=4 * 20 / np.sqrt(len(thinks)))
    assert np.std(thinks) == pytest.approx(20, rel=0.1)


def test_think_times_may_be_all_alike() -> None:
    thinks = {turn.scheduled_s for each in draw(think_time_cv=0) for turn in list(turns(each))[1:]}
    assert thinks == {20.0}


def contents(request: Request) -> tuple[Any, ...]:
    return (request.request_id, request.prompt_tokens, request.output_tokens, request.prefix)


def test_other_arrivals_and_limits_leave_contents_and_think_times_alone() -> None:
    sessions = draw()
    for changed in (
        {"arrivals": ConstantArrivals(), "rate_rps": 11.0},
        {"duration_s": 100.0},
        {"duration_s": None, "num_requests": 100_000},
    ):
        others = draw(**changed)  # type: ignore[arg-type]
        assert len(others) > 100
        for one, other in zip(sessions, others, strict=False):
            assert contents(one) == contents(other)
            assert one.next_turn == other.next_turn  # with its think time, and all later ones


def test_other_think_times_and_answers_leave_all_else_alone() -> None:
    sessions = draw()
    for one, other in zip(sessions, draw(think_time_s=1.0), strict=True):
        assert [contents(turn) for turn in turns(one)] == [contents(turn) for turn in turns(other)]
    for one, other in zip(sessions, draw(answer=FixedLength(tokens=7)), strict=True):
        assert one.scheduled_s == other.scheduled_s
        for turn, changed in zip(turns(one), turns(other), strict=True):
            assert changed.output_tokens == 7
            assert changed.request_id == turn.request_id
            messages = [
                [segment for segment in each.prefix if segment.source is not Source.OUTPUT]
                for each in (turn, changed)
            ]
            assert messages[0] == messages[1]


def test_num_requests_counts_turns_and_cuts_the_last_session() -> None:
    sessions = draw()
    for number in (1, 2, 5, 77):
        cut = draw(num_requests=number)
        assert len(every_turn(cut)) == number
        for one, other in zip(every_turn(sessions), every_turn(cut), strict=False):
            assert contents(one) == contents(other)
    assert len(every_turn(draw(num_requests=10_000, duration_s=None))) == 10_000


def test_a_session_ends_before_the_turn_that_would_not_fit() -> None:
    free, cut = draw(), draw(max_total_tokens=400)
    assert max(turn.prompt_tokens + turn.output_tokens for turn in every_turn(free)) > 400
    for one, other in zip(free, cut, strict=True):
        kept, whole = list(turns(other)), list(turns(one))
        assert all(turn.prompt_tokens + turn.output_tokens <= 400 for turn in kept)
        assert [contents(turn) for turn in kept] == [contents(turn) for turn in whole[: len(kept)]]
        if len(kept) < len(whole):
            first_left_out = whole[len(kept)]
            assert first_left_out.prompt_tokens + first_left_out.output_tokens > 400


def test_a_seed_gives_these_sessions_on_every_machine() -> None:
    # Recorded, not derived: a change of numpy's streams, or of ours, must not pass unseen.
    drawn = [(*contents(turn)[:3], turn.scheduled_s) for turn in every_turn(draw()[:3])]
    assert drawn == [
        (0, 70, 59, 0.0),
        (1, 184, 145, 4.942291287),
        (2, 132, 15, 0.383988278),
        (3, 93, 167, 0.396943849),
    ]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"turns": 3}, r"^workload\.kinds\.chat\.turns is 3; it must be a distribution of lengths"),
        ({"message": None}, r"^workload\.kinds\.chat\.message is null"),
        ({"answer": "long"}, r"^workload\.kinds\.chat\.answer is 'long'"),
        (
            {"think_time_s": -1},
            r"^workload\.kinds\.chat\.think_time_s is -1; .* 0 to 1,000,000 seconds",
        ),
        ({"think_time_cv": 11}, r"^workload\.kinds\.chat\.think_time_cv is 11"),
        (
            {"system_prompts": 8},
            r"^workload\.kinds\.chat\.system_prompts is 8; it must be a SharedTexts",
        ),
        (
            {"max_total_tokens": 349},
            r"^workload\.max_total_tokens is 349; it must be a whole number from 350 to",
        ),
        ({"duration_s": None}, r"^workload\.duration_s is null"),
        ({"rate_rps": None}, r"^workload\.rate_rps is null"),
        ({"name": " "}, r"^workload\.name is ' '"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        make(**changed)


def test_a_seed_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(WorkloadError, match="seed is -1"):
        make().requests(-1)


def test_arguments_are_by_keyword_only() -> None:
    parameters = list(inspect.signature(MultiTurn.__init__).parameters.values())[1:]
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.KEYWORD_ONLY}
