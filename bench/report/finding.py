"""The report's first sentence: what the numbers say, and no more than they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.report.differences import ahead, difference, shown
from bench.report.groups import comparable, conditions, labels, places, times
from bench.report.palette import backend_order
from bench.report.quantities import REQUESTS_PER_S, TTFT, format_number, wasted_share
from bench.report.rates import Line, Sweep
from bench.report.results import Run
from bench.report.statistics import Estimate

SAME_RATE = 1.05


@dataclass(frozen=True)
class Finding:
    """`headline` is one sentence; `details` has one a comparison where there are several."""

    headline: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Entrant:
    label: str
    run: Run
    requests_per_s: float


@dataclass(frozen=True)
class _Contest:
    """Completed runs of the same traffic, the fastest first. `where` says which traffic."""

    where: str
    entrants: tuple[_Entrant, ...]

    @property
    def fastest(self) -> _Entrant:
        return self.entrants[0]

    @property
    def winners(self) -> set[str]:
        """Labels of the fastest and of those that it is not ahead of."""
        fastest = self.fastest.run
        return {e.label for e in self.entrants if not ahead(REQUESTS_PER_S, fastest, e.run)}

    @property
    def slowest(self) -> _Entrant:
        """Of runs that are as slow, to three digits, the simplest backend."""
        return min(
            self.entrants,
            key=lambda entrant: (
                float(f"{entrant.requests_per_s:.3g}"),
                backend_order(entrant.run.backend),
            ),
        )

    @property
    def ratio(self) -> float | None:
        """Fastest / slowest requests/s; None where the slowest completed nothing."""
        if self.slowest.requests_per_s == 0:
            return None
        return self.fastest.requests_per_s / self.slowest.requests_per_s

    @property
    def change(self) -> Estimate | None:
        """By what share the fastest is faster than the slowest, with its interval over repeats."""
        return difference(REQUESTS_PER_S, self.slowest.run, self.fastest.run)

    @property
    def within_5_percent(self) -> bool:
        both_zero = self.fastest.requests_per_s == 0
        return both_zero or (self.ratio is not None and self.ratio < SAME_RATE)

    @property
    def even(self) -> bool:
        """Whether no difference in requests/s is worth a sentence: it is small, or noise."""
        return self.within_5_percent or not shown(self.change)


def finding(runs: Sequence[Run], swept: Sequence[Sweep] = ()) -> Finding | None:
    """What the completed runs show, a sweep of rates before single rates; None where no two of
    them can be compared."""
    if said := [_held(sweep) for sweep in swept if len(sweep.lines) > 1]:
        return Finding(said[0], tuple(said[1:]))
    contests = _contests(runs)
    if not contests:
        return None
    if len(contests) == 1:
        return Finding(_sentence(contests[0]))
    return Finding(_headline(contests), tuple(_sentence(contest) for contest in contests))


def _held(sweep: Sweep) -> str:
    """The highest rate that each backend serves within the objective, and what the KV budget of the
    last held at that of the first."""
    lines = sorted(
        sweep.lines, key=lambda line: (-(line.held or 0), backend_order(line.run.backend))
    )
    first, *rest = [f"{line.label} {line.knee_said()}" for line in lines]
    kind = times([line.run for line in lines])
    left_out = sum(len(line.left_out) for line in lines)
    clauses = [
        f"{sweep.workload}, {kind} time: highest rate served with {lines[0].slo.said()}: {first} "
        f"requests/s; {', '.join(rest)}",
        _waste_at(lines[0], lines[-1]),
        f"left out: {left_out} that did not complete" if left_out else "",
    ]
    return "; ".join(clause for clause in clauses if clause) + "."


def _waste_at(first: Line, last: Line) -> str:
    """What the KV budget of the last held at the rate that the first holds and it misses."""
    run = next((point.run for point in first.points if point.offered == first.held), None)
    if run is None or last.held == first.held:
        return ""
    point = next((each for each in last.points if conditions(each.run) == conditions(run)), None)
    share = None if point is None else wasted_share(point.run)
    if point is None or share is None:
        return ""
    return (
        f"at {first.held:.3g} requests/s {_percent(share)} of the KV budget of {last.label} "
        f"{_held_nothing([point.run])} while memory-bound"
    )


def _contests(runs: Sequence[Run]) -> list[_Contest]:
    groups = [group for group in comparable(runs) if len(group) > 1]
    contests = []
    for group, where in zip(groups, places(groups), strict=True):
        entrants = [
            _Entrant(label, run, rate)
            for label, run in zip(labels(group), group, strict=True)
            if (rate := REQUESTS_PER_S.read(run)) is not None
        ]
        if len(entrants) > 1:
            ordered = sorted(entrants, key=lambda entrant: -entrant.requests_per_s)
            contests.append(_Contest(where, tuple(ordered)))
    return contests


def _sentence(contest: _Contest) -> str:
    clauses = [_rate_clause(contest), _latency_clause(contest), _waste_clause(contest),
               _completion_clause(contest)]  # fmt: skip
    return "; ".join(clause for clause in clauses if clause) + "."


def _rate_clause(contest: _Contest) -> str:
    fastest, slowest, ratio = contest.fastest, contest.slowest, contest.ratio
    if contest.within_5_percent:
        return (
            f"The {len(contest.entrants)} runs completed requests at the same rate within 5 % "
            f"({contest.where})"
        )
    if ratio is None:
        return (
            f"{fastest.label} completed {fastest.requests_per_s:.3g} requests/s and "
            f"{slowest.label} none ({contest.where})"
        )
    digits = 2 if ratio < 1.2 else 1
    interval = _interval(contest.change, digits)
    if contest.even:
        return (
            f"No difference in requests/s is shown between {fastest.label} and {slowest.label}, "
            f"the most and the fewest of {len(contest.entrants)} runs: {ratio:.{digits}f} "
            f"times{interval} ({contest.where})"
        )
    return (
        f"{fastest.label} completed {ratio:.{digits}f} times{interval} the requests/s of "
        f"{slowest.label} ({contest.where})"
    )


def _interval(change: Estimate | None, digits: int) -> str:
    """The ends of a ratio's interval; empty where there is none, or nothing in it to see."""
    if change is None or change.low is None or change.high is None:
        return ""
    low, high = (f"{1 + end:.{digits}f}" for end in (change.low, change.high))
    return f" ({low} to {high})" if low != high else ""


def _latency_clause(contest: _Contest) -> str:
    """Where all served the same rate: whose requests waited longest for their first token."""
    p99 = TTFT["p99"]
    known = [(entrant, value) for entrant in contest.entrants
             if (value := p99.read(entrant.run)) is not None]  # fmt: skip
    if not contest.even or len(known) < 2:
        return ""
    (best, least), (worst, most) = (pick(known, key=lambda each: each[1]) for pick in (min, max))
    if most < SAME_RATE * least or not ahead(p99, best.run, worst.run):
        return ""
    return (
        f"the p99 of TTFT was {format_number(most)} s with {worst.label} and "
        f"{format_number(least)} s with {best.label}"
    )


def _waste_clause(contest: _Contest) -> str:
    """The waste of the slowest and the fastest, or in an even contest the most and the least."""
    known = [(entrant, wasted_share(entrant.run)) for entrant in contest.entrants]
    wasted = [(entrant, share) for entrant, share in known if share is not None]
    if not wasted:
        return "none of them was memory-bound"
    if contest.even:
        ordered = sorted(wasted, key=lambda pair: -pair[1])
        pairs = [ordered[0], ordered[-1]] if len(ordered) > 1 else ordered
    else:
        ends = (contest.slowest, contest.fastest)
        pairs = [pair for end in ends for pair in wasted if pair[0] is end]
    if not pairs:
        return ""
    (first, most), *rest = pairs
    held = _held_nothing([entrant.run for entrant, _ in pairs])
    text = f"while memory-bound, {_percent(most)} of the KV budget of {first.label} {held}"
    text += "".join(f", against {_percent(s)} of that of {entrant.label}" for entrant, s in rest)
    spared = contest.fastest.run.summary.get("memory_bound") is None
    return f"{text}; {contest.fastest.label} never was memory-bound" if spared else text


def _held_nothing(runs: Sequence[Run]) -> str:
    cached = any(run.number("memory_bound", "cached") for run in runs)
    return "held neither a live token nor a cached block" if cached else "held no live token"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _completion_clause(contest: _Contest) -> str:
    """Says so where one of the two did not complete all that was sent to it."""
    said = []
    for entrant in (contest.fastest, contest.slowest):
        counts = entrant.run.request_counts
        sent, completed = counts.get("sent"), counts.get("completed")
        if sent is None or completed is None:
            return ""
        cancelled = counts.get("cancelled", 0)
        left = f" ({cancelled:,} were cancelled)" if cancelled else ""
        text = f"{completed:,} of {sent:,} requests{left}"
        said.append((text, entrant.label, completed + cancelled == sent))
    (first, fastest, first_all), (second, slowest, second_all) = said
    if first_all and second_all and first == second:
        return ""
    if first == second:
        return f"each completed {first}"
    return f"{fastest} completed {first}, {slowest} {second}"


def _headline(contests: Sequence[_Contest]) -> str:
    uneven = [contest for contest in contests if not contest.even]
    count = len(contests)
    if not uneven:
        return f"In all {count} comparisons the runs' requests/s were {_alike(contests)}."
    winners = set.intersection(*(contest.winners for contest in uneven))
    if not winners:
        leads = ", ".join(f"{c.fastest.label} ({c.where})" for c in uneven[:4])
        more = f" and {len(uneven) - 4} more" if len(uneven) > 4 else ""
        return f"No backend completed the most requests/s in every comparison: {leads}{more}."
    scope = f"all {count}" if len(uneven) == count else f"{len(uneven)} of {count}"
    ratios = [contest.ratio for contest in uneven if contest.ratio is not None]
    span = f", {_span(ratios)} times those of the slowest" if ratios else ""
    rest = [contest for contest in contests if contest.even]
    even = f"; in the others all were {_alike(rest)}" if rest else ""
    kinds = times([entrant.run for contest in contests for entrant in contest.entrants])
    ordered = [e.label for e in sorted(uneven[0].entrants, key=_simplest) if e.label in winners]
    repeated = any(e.run.repeats for contest in uneven for e in contest.entrants)
    alike = f", alike within {'1 % or noise' if repeated else '1 %'}," if len(ordered) > 1 else ""
    return (
        f"{_listed(ordered)}{alike} completed the most requests/s in {scope} comparisons"
        f"{span} ({kinds} time){even}."
    )


def _alike(contests: Sequence[_Contest]) -> str:
    """How the runs of even contests compare."""
    noise = not all(contest.within_5_percent for contest in contests)
    return "within 5 % of each other" + (", or no difference is shown" if noise else "")


def _listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _simplest(entrant: _Entrant) -> tuple[int, str]:
    return backend_order(entrant.run.backend)


def _span(ratios: Sequence[float]) -> str:
    low, high = f"{min(ratios):.1f}", f"{max(ratios):.1f}"
    return low if low == high else f"{low} to {high}"
