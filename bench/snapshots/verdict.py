"""Which setting would have helped: one sentence, from the numbers of the replays."""

from __future__ import annotations

from collections.abc import Sequence

from bench.snapshots.outcome import GIB, Outcome

MATTERS = 0.01
"""Less of a peak than this is no help."""


def verdict(outcomes: Sequence[Outcome], base: Outcome) -> str:
    """What another setting does better than `base`: fewer allocations fail, or less is reserved, or
    the cache is emptied less often for want of memory; in this order."""
    if len(outcomes) == 1:
        return (
            f"Nothing was compared: {base.name} alone was replayed; give alloc_conf= several times."
        )
    best = min(outcomes, key=lambda each: (each.failures, each.peak_reserved_bytes))
    if best.failures < base.failures:
        return _fewer_fail(best, base, outcomes)
    saved = _saved(best, base)
    if saved > MATTERS:
        return (
            f"{best.name} would have helped: it reserves at most {_gib(best.peak_reserved_bytes)} "
            f"where {base.name} reserves {_gib(base.peak_reserved_bytes)}, {saved:.0%} less, for "
            f"{_gib(best.peak_allocated_bytes)} allocated{_all_the_same(base)}."
        )
    calmest = min(_as_small(outcomes, base), key=lambda each: each.num_alloc_retries)
    if calmest.num_alloc_retries < base.num_alloc_retries:
        return (
            f"{calmest.name} would have helped a little: memory goes back to the driver for want "
            f"of it {_times(calmest.num_alloc_retries)}, under {base.name} "
            f"{_times(base.num_alloc_retries)}; what is reserved at most is the same within "
            f"{MATTERS:.0%}{_all_the_same(base)}."
        )
    return (
        f"None of these settings would have helped: {base.name} reserves at most "
        f"{_gib(base.peak_reserved_bytes)} for {_gib(base.peak_allocated_bytes)} allocated, and "
        f"none reserves {MATTERS:.0%} less{_all_the_same(base)}."
    )


def _saved(best: Outcome, base: Outcome) -> float:
    """Share of the most that `base` reserves; none where it reserves nothing."""
    if not base.peak_reserved_bytes:
        return 0.0
    return 1 - best.peak_reserved_bytes / base.peak_reserved_bytes


def _fewer_fail(best: Outcome, base: Outcome, outcomes: Sequence[Outcome]) -> str:
    alike = [each.name for each in outcomes if each is not best and each.failures == best.failures]
    others = f", as would {' and '.join(alike)}" if alike else ""
    fail = "no allocation fails" if not best.failures else f"{_allocations(best.failures)}"
    left = "; those that remain need memory, not a setting" if best.failures else ""
    return (
        f"{best.name} would have helped{others}: {fail} where {_allocations(base.failures)} under "
        f"{base.name}, and at most {_gib(best.peak_reserved_bytes)} are reserved for "
        f"{_gib(best.peak_allocated_bytes)} allocated{left}."
    )


def _as_small(outcomes: Sequence[Outcome], base: Outcome) -> list[Outcome]:
    most = (1 + MATTERS) * base.peak_reserved_bytes
    return [
        each
        for each in outcomes
        if each.peak_reserved_bytes <= most and each.failures <= base.failures
    ]


def _all_the_same(base: Outcome) -> str:
    """Of failures that no setting takes away."""
    if not base.failures:
        return ""
    return f"; {_allocations(base.failures)} all the same, for which there is no memory"


def _allocations(failures: int) -> str:
    return "1 allocation fails" if failures == 1 else f"{failures:,} allocations fail"


def _times(count: int) -> str:
    return "never" if not count else "once" if count == 1 else f"{count:,} times"


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / GIB:,.2f} GiB"
