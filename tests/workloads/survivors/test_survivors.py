from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.base import WorkloadError
from workloads.streams import stream
from workloads.survivors.base import SurvivorProcess, in_place
from workloads.survivors.scores import ScoreSurvivors
from workloads.survivors.uniform import UniformSurvivors

PROCESSES: list[SurvivorProcess] = [UniformSurvivors(), ScoreSurvivors()]
by_class = pytest.mark.parametrize("process", PROCESSES, ids=lambda each: type(each).__name__)


def steps(process: SurvivorProcess, number: int, width: int, seed: int = 0) -> list[tuple[int]]:
    return list(itertools.islice(process.steps(seed, 5, width), number))


@by_class
@pytest.mark.parametrize("width", [1, 2, 6, 64])
def test_each_step_names_a_parent_for_every_beam(process: SurvivorProcess, width: int) -> None:
    for parents in steps(process, 150, width):
        assert len(parents) == width
        assert all(type(parent) is int and 0 <= parent < width for parent in parents)


@by_class
def test_a_beam_that_survives_keeps_its_number(process: SurvivorProcess) -> None:
    drawn = steps(process, 300, 6)
    assert any(len(set(parents)) < 6 for parents in drawn)
    for parents in drawn:
        assert all(parents[beam] == beam for beam in set(parents))


@by_class
def test_a_seed_and_a_request_have_their_own_steps_each_time(process: SurvivorProcess) -> None:
    first = steps(process, 200, 4)
    assert steps(process, 200, 4) == first
    assert steps(process, 200, 4, seed=1) != first
    assert list(itertools.islice(process.steps(0, 6, 4), 200)) != first


@given(st.lists(st.integers(0, 7), min_size=8, max_size=8))
def test_survivors_are_renumbered_and_none_is_lost(parents: list[int]) -> None:
    order = in_place(parents)
    assert sorted(order) == list(range(8))
    for beam in set(parents):
        assert order[beam] == parents.index(beam)


def pairs_with_one_parent(parents: tuple[int, ...]) -> float:
    """The share of pairs of survivors that go on from the same beam."""
    width = len(parents)
    pairs = sum(size * (size - 1) for size in Counter(parents).values())
    return pairs / (width * (width - 1))


@pytest.mark.parametrize("width", [2, 4, 6])
def test_uniform_survivors_share_a_parent_once_in_width_pairs(width: int) -> None:
    drawn = steps(UniformSurvivors(), 20_000, width)
    shared = np.mean([pairs_with_one_parent(parents) for parents in drawn])
    # pairs of one step are pairwise independent: Var = p (1 - p) / (pairs steps); 4 deviations
    p, pairs = 1 / width, width * (width - 1) / 2
    assert shared == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / (pairs * 20_000)))


def steps_to_common_ancestor(history: list[tuple[int, ...]]) -> int:
    """How many steps back beams 0 and 1 of the last step were one."""
    one, other = 0, 1
    for back, parents in enumerate(reversed(history), 1):
        one, other = parents[one], parents[other]
        if one == other:
            return back
    raise AssertionError("no common ancestor in the history")


@pytest.mark.parametrize("width", [2, 4, 6])
def test_uniform_lines_of_descent_meet_after_width_steps(width: int) -> None:
    process, runs = UniformSurvivors(), 1500
    found = [
        steps_to_common_ancestor(list(itertools.islice(process.steps(0, run, width), 200)))
        for run in range(runs)
    ]
    # geometric with p = 1/k: mean k, variance k (k - 1); 4 standard errors
    assert np.mean(found) == pytest.approx(width, abs=4 * np.sqrt(width * (width - 1) / runs))


def beam_search_of_two(seed: int, request_id: int, spread: float, chunk: int) -> Iterator[set[int]]:
    """Every continuation of both beams, ranked: the beams that the best two of all 2 x 64 go on
    from. The better of two survivors of one beam stays at its place."""
    rng = stream(seed, f"survivors/{request_id}")

    def log_probabilities(shape: tuple[int, ...]) -> np.ndarray:
        odds = np.exp(spread * rng.standard_normal((*shape, 64)))
        return np.log(odds / odds.sum(axis=-1, keepdims=True))

    scores = sorted(log_probabilities((1,))[0])[-2:]
    while True:
        for gains in log_probabilities((chunk, 2)):
            ranked = sorted(
                ((scores[beam] + gain, beam) for beam in (0, 1) for gain in gains[beam]),
                reverse=True,
            )
            (best, its_beam), (second, other_beam) = ranked[:2]
            scores[its_beam], scores[1 - its_beam] = best, second
            yield {its_beam, other_beam}


def test_scores_are_those_of_a_search_over_all_continuations() -> None:
    process = ScoreSurvivors(candidates=64, spread=1.5)
    expected = beam_search_of_two(3, 8, 1.5, chunk=64)
    for parents, survivors in itertools.islice(
        zip(process.steps(3, 8, 2), expected, strict=False), 1000
    ):
        assert set(parents) == survivors


def test_the_default_tokens_are_as_uncertain_as_opt_13b_finds_wikitext() -> None:
    logits = 2.35 * np.random.default_rng(0).standard_normal((20_000, 64))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    entropy = -(p * np.log(p)).sum(axis=1).mean()
    assert entropy == pytest.approx(np.log(10.13), abs=0.02)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"candidates": 1}, "candidates of scores is 1; it must be a whole number from 2 to 4,096"),
        ({"candidates": 2.5}, r"candidates of scores is 2\.5"),
        ({"spread": -1}, "spread of scores is -1; it must be a number from 0 to 100"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(settings: dict[str, int], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        ScoreSurvivors(**settings)
