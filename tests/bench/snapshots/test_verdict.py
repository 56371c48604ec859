"""The sentence that a replay ends with."""

from __future__ import annotations

from bench.snapshots.outcome import Outcome
from bench.snapshots.verdict import verdict

GIB = 1 << 30


def outcome(conf: str, reserved_gib: float, *, ooms: int = 0, retries: int = 0) -> Outcome:
    peak, allocated = int(reserved_gib * GIB), 8 * GIB
    return Outcome(conf, peak, allocated, retries, ooms, None, 0, 0, {})


BASE = outcome("", 10)


def test_fewer_failures_help_most() -> None:
    failing = outcome("", 10, ooms=3)
    others = [failing, outcome("a", 11), outcome("b", 12), outcome("c", 9, ooms=1)]
    assert verdict(others, failing) == (
        "a would have helped, as would b: no allocation fails where 3 allocations fail under "
        "default, and at most 11.00 GiB are reserved for 8.00 GiB allocated."
    )
    assert verdict([failing, others[-1]], failing).endswith("need memory, not a setting.")


def test_then_less_that_is_reserved() -> None:
    assert verdict([BASE, outcome("a", 8.5)], BASE) == (
        "a would have helped: it reserves at most 8.50 GiB where default reserves 10.00 GiB, 15% "
        "less, for 8.00 GiB allocated."
    )


def test_then_fewer_retries() -> None:
    retrying = outcome("", 10, retries=5)
    assert "1 would have" in verdict([retrying, outcome("1", 10.05, retries=1)], retrying)
    assert "once, under default 5 times" in verdict(
        [retrying, outcome("1", 10.05, retries=1)], retrying
    )


def test_less_than_a_hundredth_is_no_help() -> None:
    assert verdict([BASE, outcome("a", 9.95)], BASE).startswith("None of these settings")
    failing, other = outcome("", 10, ooms=1), outcome("a", 10, ooms=2)
    assert "1 allocation fails all the same" in verdict([failing, other], failing)


def test_one_replay_and_nothing_reserved_are_no_help() -> None:
    assert verdict([BASE], BASE).startswith("Nothing was compared: default alone")
    nothing = outcome("", 0)
    assert verdict([nothing, outcome("a", 0)], nothing).startswith("None of these settings")
