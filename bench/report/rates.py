"""A sweep of rates: which of them each backend serves within its objective (SLO)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from bench.report.groups import conditions, labels, memory_side
from bench.report.repeats import name_without
from bench.report.results import Run, mean_of

RATE_SETTINGS = ("workload.rate_rps", "workload.time_scale")
"""Sweeping one of them sweeps the rate of the same traffic."""

_COLUMNS = ("status", "generated_tokens", "sent_s", "first_token_s", "last_token_s",
            "end_s")  # fmt: skip


@dataclass(frozen=True)
class Slo:
    """What a request is promised, and for how many of those sent it must hold. By default MLPerf
    Inference's limits for Llama-2-70B on a server, and DistServe's attainment (Zhong et al., OSDI
    2024)."""

    ttft_s: float = 2.0
    tpot_s: float = 0.2
    attained: float = 0.9

    def limits_said(self) -> str:
        """What a request is promised, in words."""
        tpot_ms = 1000 * self.tpot_s
        return f"first token within {self.ttft_s:g} s and {tpot_ms:g} ms a token after it"

    def said(self) -> str:
        """All of it in words."""
        return f"{self.limits_said()}, for {100 * self.attained:g} % of the requests sent"


@dataclass(frozen=True)
class Point:
    """One backend at one rate. `goodput` is requests a second that met the objective; `share` is
    theirs of all that were sent."""

    run: Run
    offered: float
    goodput: float
    share: float


@dataclass(frozen=True)
class Line:
    """One backend, with settings of its own where others share it, over the rates from the lowest;
    `left_out` are its runs that did not complete."""

    label: str
    points: tuple[Point, ...]
    slo: Slo
    left_out: tuple[Run, ...] = ()

    @property
    def run(self) -> Run:
        """One of its runs, for what all have in common."""
        return self.points[0].run

    @property
    def held(self) -> float | None:
        """The highest rate up to which all met the objective, in requests/s; None if none did."""
        met = None
        for point in self.points:
            if point.share < self.slo.attained:
                break
            met = point.offered
        return met

    @property
    def missed(self) -> float | None:
        """The lowest rate that did not; None if all did."""
        return next((p.offered for p in self.points if p.share < self.slo.attained), None)

    def knee_said(self) -> str:
        """The highest rate held, and what bounds it."""
        if self.held is None:
            return f"below {self.missed:.3g}"
        return f"{self.held:.3g}" if self.missed else f"{self.held:.3g} and more"


@dataclass(frozen=True)
class Sweep:
    """Backends under the same traffic at several rates."""

    lines: tuple[Line, ...]

    @property
    def workload(self) -> str:
        return self.lines[0].run.workload


def sweeps(runs: Sequence[Run], slo: Slo) -> list[Sweep]:
    """The sweeps among completed runs: where one backend at least has two rates."""
    groups: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        lines = groups.setdefault(conditions(run, apart_from=RATE_SETTINGS), {})
        lines.setdefault(memory_side(run), []).append(run)
    found = [
        Sweep(tuple(_lines(list(lines.values()), slo)))
        for lines in groups.values()
        if any(len(each) > 1 for each in lines.values())
    ]
    return [sweep for sweep in found if any(len(line.points) > 1 for line in sweep.lines)]


def _lines(groups: Sequence[Sequence[Run]], slo: Slo) -> Iterator[Line]:
    """A line for each backend of which one run at least can be used."""
    named = [_without_rate(group[0]) for group in groups]
    for label, group in zip(labels(named), groups, strict=True):
        points = [point for run in group if run.completed and (point := _point(run, slo))]
        points.sort(key=lambda point: point.offered)
        if points:
            left_out = tuple(run for run in group if not run.completed)
            yield Line(label, tuple(points), slo, left_out)


def _without_rate(run: Run) -> Run:
    name = name_without(run.name, *RATE_SETTINGS)
    return replace(run, summary={**run.summary, "name": name})


def _point(run: Run, slo: Slo) -> Point | None:
    """None where the run's files do not say."""
    offered = mean_of(run, _offered)
    goodput = mean_of(run, lambda each: _goodput(each, slo))
    share = mean_of(run, lambda each: _share(each, slo))
    if offered is None or goodput is None or share is None:
        return None
    return Point(run, offered, goodput, share)


def _offered(run: Run) -> float | None:
    """Requests sent a second, from the first to the last."""
    sent_s = run.requests.read(("sent_s",), run.notes)["sent_s"].dropna()
    span_s = sent_s.max() - sent_s.min() if len(sent_s) > 1 else 0.0
    return float((len(sent_s) - 1) / span_s) if span_s > 0 else None


def _goodput(run: Run, slo: Slo) -> float | None:
    span_s = run.number("simulated_s")
    return float(_met(run, slo).sum() / span_s) if span_s else None


def _share(run: Run, slo: Slo) -> float | None:
    """Of the requests sent; those that could still have met it when the run ended do not count."""
    sent = run.request_counts.get("sent")
    decided = sent - int(_undecided(run, slo).sum()) if sent else 0
    return float(_met(run, slo).sum() / decided) if decided > 0 else None


def _met(run: Run, slo: Slo) -> pd.Series[bool]:
    """Which requests completed within the objective. One of a single token has no TPOT to miss."""
    rows = run.requests.read(_COLUMNS, run.notes)
    gaps = (rows["generated_tokens"] - 1).clip(lower=1)
    tpot_s = np.where(
        rows["generated_tokens"] > 1, (rows["last_token_s"] - rows["first_token_s"]) / gaps, 0.0
    )
    return (rows["status"] == "completed") & (_ttft_s(rows) <= slo.ttft_s) & (tpot_s <= slo.tpot_s)


def _undecided(run: Run, slo: Slo) -> pd.Series[bool]:
    rows = run.requests.read(_COLUMNS, run.notes)
    waited_s = _ttft_s(rows).fillna(rows["end_s"] - rows["sent_s"])
    return (rows["status"] == "unfinished") & (waited_s <= slo.ttft_s)


def _ttft_s(rows: pd.DataFrame) -> pd.Series[float]:
    return rows["first_token_s"] - rows["sent_s"]
