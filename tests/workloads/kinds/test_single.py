from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

from workloads.arrivals.poisson import PoissonArrivals
from workloads.base import Request, WorkloadError
from workloads.generated import GeneratedWorkload
from workloads.kinds.single import SingleTurn
from workloads.lengths.fixed import FixedLength
from workloads.lengths.gamma import GammaLengths
from workloads.lengths.lognormal import LognormalLengths
from workloads.survivors.scores import ScoreSurvivors
from workloads.survivors.uniform import UniformSurvivors
from workloads.tokens import prompt_ids

PLAIN: dict[str, Any] = {
    "prompt": GammaLengths(mean_tokens=300, cv=1, max_tokens=2000),
    "output": LognormalLengths(mean_tokens=30, cv=2, max_tokens=900),
}


class RisingPairs:
    """A pair (n, 2 n) for n drawn from 1 to 50."""

    longest_prompt_tokens = 50

    def draw(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        prompts = rng.integers(1, 50, size, np.int64, endpoint=True)
        return prompts, 2 * prompts


def draw(seed: int = 0, number: int = 3000, **of_kind: Any) -> list[Request]:
    kinds = {
        "one": SingleTurn(share=0.5, **{**PLAIN, **of_kind}),
        "two": SingleTurn(share=0.5, **PLAIN),
    }
    workload = GeneratedWorkload(
        kinds=kinds, arrivals=PoissonArrivals(), rate_rps=4.0, num_requests=number
    )
    return list(workload.requests(seed))


def plain(request: Request) -> tuple[Any, ...]:
    return (request.request_id, request.scheduled_s, request.kind, request.output_tokens)


def of_one(requests: list[Request]) -> list[Request]:
    return [each for each in requests if each.kind == "one"]


@pytest.mark.parametrize(
    "changed",
    [
        {"prefix_tokens": 70, "prefixes": 5},
        {"prefix_share": 0.4, "prefixes": 3},
        {"branches": 4},
        {"branches": 4, "survivors": UniformSurvivors()},
    ],
)
def test_sharing_leaves_every_draw_where_it_was(changed: dict[str, Any]) -> None:
    added = changed.get("prefix_tokens", 0)
    for one, other in zip(draw(), draw(**changed), strict=True):
        assert plain(one) == plain(other)
        assert other.prompt_tokens - one.prompt_tokens == (added if one.kind == "one" else 0)


def test_a_prefix_is_put_before_what_was_drawn_and_is_the_kinds_own() -> None:
    requests = draw(prefix_tokens=70)
    starts = {tuple(prompt_ids(each, 32_000)[:70]) for each in of_one(requests)}
    assert len(starts) == 1
    assert all(not each.prefix for each in requests if each.kind == "two")
    one, other = of_one(requests)[:2]
    assert prompt_ids(one, 32_000)[70] != prompt_ids(other, 32_000)[70]


def test_a_share_is_the_same_leading_part_of_every_prompt() -> None:
    requests = of_one(draw(prefix_share=0.35))
    for one, other in itertools.pairwise(requests[:50]):
        shared = min(int(0.35 * each.prompt_tokens) for each in (one, other))
        mine, theirs = prompt_ids(one, 32_000), prompt_ids(other, 32_000)
        assert mine[:shared].tolist() == theirs[:shared].tolist()
    shared_tokens = sum(segment.tokens for each in requests for segment in each.prefix)
    tokens = sum(each.prompt_tokens for each in requests)
    assert 0.35 - len(requests) / tokens <= shared_tokens / tokens <= 0.35  # rounded down


def test_a_prefix_and_a_share_go_together() -> None:
    before = of_one(draw())
    for one, other in zip(before, of_one(draw(prefix_tokens=70, prefix_share=0.5)), strict=True):
        assert other.prompt_tokens == one.prompt_tokens + 70
        assert [each.tokens for each in other.prefix] == [70 + one.prompt_tokens // 2]


def test_prefixes_are_chosen_uniformly() -> None:
    used = Counter(each.prefix[0].id for each in of_one(draw(prefix_tokens=9, prefixes=4)))
    total = sum(used.values())
    assert len(used) == 4
    for number in used.values():
        assert number == pytest.approx(total / 4, abs=4 * np.sqrt(total * 3 / 16))


def test_samples_have_no_survivors_and_beams_have_their_own() -> None:
    assert {(each.branches, each.survivors) for each in of_one(draw(branches=6))} == {(6, None)}
    beams = of_one(draw(branches=3, survivors=ScoreSurvivors(), number=50))
    steps = []
    for request in beams[:2]:
        assert request.survivors is not None
        first, again = (list(itertools.islice(request.survivors(), 100)) for _ in range(2))
        assert first == again
        assert all(len(parents) == 3 for parents in first)
        steps.append(first)
    assert steps[0] != steps[1]


def test_pairs_are_drawn_together_by_a_stream_of_their_own() -> None:
    requests = draw(prompt=None, output=None, pairs=RisingPairs())
    ones = of_one(requests)
    assert all(each.output_tokens == 2 * each.prompt_tokens for each in ones)
    assert {each.prompt_tokens for each in ones} == set(range(1, 51))
    twos = [[plain(each) for each in some if each.kind == "two"] for some in (requests, draw())]
    assert twos[0] == twos[1]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"branches": 0}, r"kinds\.one\.branches is 0; it must be a whole number from 1 to 256"),
        ({"prefix_tokens": -1}, r"kinds\.one\.prefix_tokens is -1"),
        ({"prefix_share": 1.1}, r"kinds\.one\.prefix_share is 1\.1; .* 0 to 1"),
        ({"prefixes": 0}, r"kinds\.one\.prefixes is 0"),
        ({"survivors": "scores"}, r"kinds\.one\.survivors is 'scores'; it must be null or a"),
        ({"survivors": UniformSurvivors()}, r"kinds\.one\.branches is 1; .* from 2 to 256 beams"),
        (
            {"survivors": ScoreSurvivors(candidates=8), "branches": 9},
            r"kinds\.one\.branches is 9; .* from 2 to 8 beams",
        ),
        ({"pairs": 7, "prompt": None, "output": None}, r"kinds\.one\.pairs is 7"),
        ({"pairs": RisingPairs()}, r"kinds\.one\.prompt is .*; it must be null where pairs"),
        ({"prompt": None}, r"kinds\.one\.prompt is null; it must be a distribution of lengths"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=rf"^workload\.{message}"):
        draw(**changed)


def test_the_longest_prompt_counts_its_prefix() -> None:
    fifty, nine = FixedLength(tokens=50), FixedLength(tokens=9)
    settings: dict[str, Any] = {
        "kinds": {"a": SingleTurn(prompt=fifty, output=nine, prefix_tokens=20)},
        "arrivals": PoissonArrivals(),
        "rate_rps": 1.0,
        "num_requests": 1,
    }
    with pytest.raises(WorkloadError, match=r"max_total_tokens is 70; .* from 71 to"):
        GeneratedWorkload(**settings, max_total_tokens=70)
    (request,) = GeneratedWorkload(**settings, max_total_tokens=71).requests(0)
    assert (request.prompt_tokens, request.output_tokens) == (70, 1)
