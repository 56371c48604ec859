"""What exercise a found, in two sentences made of its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.exercise.fragment_layouts import Layout
from bench.exercise.wording import amount, listed


def outcome(result: Mapping[str, Any]) -> str:
    """What became of the request."""
    if result["refusal"] is not None:
        return "refused"
    return "served after a retry" if result["after"]["num_alloc_retries"] else "served at once"


def given_back(result: Mapping[str, Any]) -> int:
    """Bytes that went back to the driver in the retry: what was reserved before, less what is now
    without what was taken anew."""
    before, after = result["before"], result["after"]
    taken = after["allocated_bytes"] - before["allocated_bytes"]
    return max(0, int(before["reserved_bytes"] - after["reserved_bytes"] + taken))


def finding(results: Mapping[str, Any], cases: tuple[Layout, ...], wanted: int) -> tuple[str, str]:
    """What happened, then the two numbers that tell it beforehand."""
    gaps = [amount(gap_bytes(results[case.key])) for case in cases]
    stuck = [non_releasable(results[case.key]) for case in cases]
    return (
        f"When every other tensor had been freed, a request for {amount(wanted)} "
        f"{said_outcomes(results, cases)}.",
        f"The two numbers to look at are reserved - allocated ({listed(gaps)} in the order of the "
        f"table), which is kept and unused, and non-releasable memory ({listed(stuck)}), which is "
        f"what of that cannot go back to the driver: {_verdict(results, cases, wanted)}.",
    )


def said_outcomes(results: Mapping[str, Any], cases: tuple[Layout, ...]) -> str:
    """Where the request was refused, then where it was not."""
    ways: dict[str, list[str]] = {}
    for case in sorted(cases, key=lambda case: results[case.key]["refusal"] is None):
        result = results[case.key]
        free = amount(result["before"]["free_bytes"])
        ways.setdefault(_outcome_with_cause(result), []).append(
            f"with {free} free where {case.where}"
        )
    return listed([f"was {way} {listed(where)}" for way, where in ways.items()])


def _outcome_with_cause(result: Mapping[str, Any]) -> str:
    if result["refusal"] is None and result["after"]["num_alloc_retries"]:
        return f"served by a retry that gave {amount(given_back(result))} back to the driver"
    return outcome(result)


def _verdict(results: Mapping[str, Any], cases: tuple[Layout, ...], wanted: int) -> str:
    """Whether the numbers foretold what happened."""
    told = [_room(results[case.key]) >= wanted for case in cases]
    served = [results[case.key]["refusal"] is None for case in cases]
    if told == served:
        return (
            "with what the driver has left, the first less the second is below the request where "
            "it was refused, and nowhere else"
        )
    holes = [amount(results[case.key]["before"]["largest_free_bytes"]) for case in cases]
    return f"here they do not tell alone, for the largest free pieces are {listed(holes)}"


def gap_bytes(result: Mapping[str, Any]) -> int:
    """Reserved - allocated, before the request."""
    return int(result["before"]["reserved_bytes"] - result["before"]["allocated_bytes"])


def _room(result: Mapping[str, Any]) -> int:
    """What the request could get in one piece, if all that can go back did."""
    before = result["before"]
    return int(before["driver_free_bytes"] + before["releasable_bytes"])


def non_releasable(result: Mapping[str, Any]) -> str:
    """As torch counts it; with a star where it does not and the segments are counted."""
    before = result["before"]
    if before["non_releasable_bytes"] is None:
        return f"{amount(before['stuck_bytes'])}*"
    return amount(before["non_releasable_bytes"])
