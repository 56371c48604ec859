"""Which tokens branches have in common, by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.engine.lineage import Lineage
from workloads.base import Request, Survivors


def lineage(width: int, *steps: Sequence[int]) -> Lineage:
    """Of a prompt of 10 tokens; beams survive as `steps` say, samples have no steps."""

    def survivors() -> Iterator[Sequence[int]]:
        return iter(steps)

    chosen: Survivors | None = survivors if steps else None
    return Lineage(Request(0, 0.0, 10, 9, branches=width, survivors=chosen))


def test_all_branches_go_on_from_the_only_one() -> None:
    samples = lineage(3)
    samples.fork()
    assert samples.parents == (0, 0, 0)


def test_samples_have_their_prompt_in_common_for_ever() -> None:
    samples = lineage(3)
    for known in (11, 12, 13):
        samples.grow(known)
    assert samples.trunk == 10
    assert samples.parents is None


def test_beams_have_in_common_what_their_last_common_parent_had() -> None:
    beams = lineage(3, (0, 0, 2), (1, 1, 2), (0, 1, 1), (1, 1, 1))
    beams.grow(11)  # 0 and 1 go on from one beam of 11 tokens, 2 from another
    assert (beams.parents, beams.trunk) == ((0, 0, 2), 10)
    beams.grow(12)
    assert (beams.parents, beams.trunk) == ((1, 1, 2), 10)
    beams.grow(13)  # beam 2 is dropped: the others shared 12 tokens, and 1 and 2 share 13 now
    assert (beams.parents, beams.trunk) == ((0, 1, 1), 12)
    beams.grow(14)
    assert (beams.parents, beams.trunk) == ((1, 1, 1), 14)


def test_beams_that_all_go_on_by_themselves_need_no_memory_moved() -> None:
    beams = lineage(2, (0, 1), (1, 0))
    beams.grow(11)
    assert beams.parents is None
    beams.grow(12)
    assert beams.parents == (1, 0)
