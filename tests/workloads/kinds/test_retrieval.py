from __future__ import annotations

import inspect
from collections import Counter
from typing import Any

import numpy as np
import pytest

from workloads.arrivals.constant import ConstantArrivals
from workloads.arrivals.poisson import PoissonArrivals
from workloads.base import Request, WorkloadError
from workloads.generated import GeneratedWorkload
from workloads.kinds.retrieval import Retrieval
from workloads.lengths.fixed import FixedLength
from workloads.lengths.uniform import UniformLengths
from workloads.shared_texts import SharedTexts
from workloads.tokens import prompt_ids

DOCUMENTS = SharedTexts(
    count=40, tokens=UniformLengths(min_tokens=100, max_tokens=300), exponent=1.0
)
RANKS = {segment: rank for rank, segment in enumerate(DOCUMENTS.segments("documents/rag"))}


def make(**changed: Any) -> GeneratedWorkload:
    schedule = {"arrivals": PoissonArrivals(), "rate_rps": 5.0, "num_requests": 4000}
    questions: dict[str, Any] = {
        "documents": DOCUMENTS,
        "passages": 4,
        "question": UniformLengths(min_tokens=5, max_tokens=50),
        "answer": UniformLengths(min_tokens=10, max_tokens=400),
        "system_prompt_tokens": 128,
    }
    own = {name: value for name, value in changed.items() if name in Retrieval.__slots__}
    others = {name: value for name, value in changed.items() if name not in own}
    kind = Retrieval(**{**questions, **own})
    return GeneratedWorkload(kinds={"rag": kind}, **{**schedule, **others})


def draw(seed: int = 0, **changed: Any) -> list[Request]:
    return list(make(**changed).requests(seed))


def ranks(request: Request) -> list[int]:
    return [RANKS[segment] for segment in request.prefix[1:]]


def test_a_prompt_is_the_system_prompt_different_documents_and_a_question() -> None:
    requests = draw()
    for request in requests:
        assert request.prefix[0] == requests[0].prefix[0]
        assert request.prefix[0].tokens == 128
        assert len(set(ranks(request))) == 4
        question = request.prompt_tokens - sum(segment.tokens for segment in request.prefix)
        assert 5 <= question <= 50
    assert [each.request_id for each in requests] == list(range(4000))


def test_two_requests_share_their_leading_documents_and_no_more() -> None:
    requests = draw(document_order="popularity")
    one, other = [each for each in requests if ranks(each)[:2] == [0, 1]][:2]
    assert ranks(one) != ranks(other)
    shared = 0
    for mine, theirs in zip(one.prefix, other.prefix, strict=True):
        if mine != theirs:
            break
        shared += mine.tokens
    ids, other_ids = prompt_ids(one, 32_000), prompt_ids(other, 32_000)
    assert ids[:shared].tolist() == other_ids[:shared].tolist()
    assert ids[shared] != other_ids[shared]


def test_the_first_document_of_a_race_is_the_nth_most_popular_by_zipfs_law() -> None:
    appears = Counter(rank for each in draw(passages=1) for rank in ranks(each))
    weights = 1 / np.arange(1, 41)
    expected = 4000 * weights / weights.sum()
    for rank in (0, 1, 5):
        assert appears[rank] == pytest.approx(expected[rank], abs=4 * np.sqrt(expected[rank]))


def test_relevance_is_in_random_order_and_popularity_the_same_documents_in_order() -> None:
    by_relevance, by_popularity = draw(), draw(document_order="popularity")
    for one, other in zip(by_relevance, by_popularity, strict=True):
        assert ranks(other) == sorted(ranks(one))
        assert (one.prompt_tokens, one.output_tokens) == (other.prompt_tokens, other.output_tokens)
    places = Counter(ranks(each).index(0) for each in by_relevance if 0 in ranks(each))
    total = sum(places.values())
    # each of 4 places alike; binomial deviation at most sqrt(total x 3/16); 4 of them
    assert len(places) == 4
    for number in places.values():
        assert number == pytest.approx(total / 4, abs=4 * np.sqrt(total * 3 / 16))


def test_the_output_is_cut_to_the_total() -> None:
    for one, other in zip(draw(), draw(max_total_tokens=1400), strict=True):
        assert other.prompt_tokens == one.prompt_tokens
        assert other.output_tokens == min(one.output_tokens, 1400 - one.prompt_tokens)


def test_other_arrivals_answers_and_questions_leave_the_documents_alone() -> None:
    before = [ranks(each) for each in draw()]
    for changed in (
        {"arrivals": ConstantArrivals()},
        {"answer": FixedLength(tokens=3)},
        {"question": FixedLength(tokens=3)},
    ):
        assert [ranks(each) for each in draw(**changed)] == before
    assert [ranks(each) for each in draw(1)] != before


def test_a_seed_gives_these_requests_on_every_machine() -> None:
    # Recorded, not derived: a change of numpy's streams, or of ours, must not pass unseen.
    drawn = [(each.prompt_tokens, each.output_tokens, *ranks(each)) for each in draw()[:3]]
    assert drawn == [
        (977, 194, 32, 5, 34, 19),
        (1061, 332, 8, 26, 1, 3),
        (1045, 354, 6, 2, 33, 1),
    ]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"documents": 3}, r"^workload\.kinds\.rag\.documents is 3; it must be a SharedTexts"),
        ({"passages": 41}, r"^workload\.kinds\.rag\.passages is 41; .* from 1 to 40 documents"),
        ({"question": 3}, r"^workload\.kinds\.rag\.question is 3"),
        ({"answer": None}, r"^workload\.kinds\.rag\.answer is null"),
        ({"system_prompt_tokens": -1}, r"^workload\.kinds\.rag\.system_prompt_tokens is -1"),
        (
            {"document_order": "random"},
            r"^workload\.kinds\.rag\.document_order is 'random'; .* relevance or popularity",
        ),
        ({"max_total_tokens": 1378}, r"^workload\.max_total_tokens is 1378; .* from 1,379 to"),
        ({"num_requests": None}, r"^workload\.duration_s is null"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        make(**changed)


def test_arguments_are_by_keyword_only() -> None:
    parameters = list(inspect.signature(Retrieval.__init__).parameters.values())[1:]
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.KEYWORD_ONLY}
