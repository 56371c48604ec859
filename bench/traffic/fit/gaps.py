"""An arrival process fitted to a trace's times."""

from __future__ import annotations

from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from bench.plugins import make
from bench.traffic.fit.families import gamma_shape
from bench.traffic.fit.target import FITTED, Floats, Ints
from bench.traffic.rates import LEAST_GAPS, WINDOW_S, peak_to_mean, windows
from workloads.arrivals.base import NS_PER_S, Arrivals, seconds
from workloads.streams import stream

ARRIVALS = "workloads.arrivals"
BURSTINESS = (0.01, 1000.0)
"""What `GammaArrivals` takes."""
NEARLY_AS_GOOD = 0.02
"""Of distance: a simpler process that is no further than this from the best is taken."""
FAR_OFF = 0.1
DRAWN = 100_000
"""Gaps of a process that stand for its distribution: within 0.005 of it (Kolmogorov, 5 %)."""
COARSE = 0.1
"""Of the mean gap: times that are never closer than this say little of the gaps themselves."""
IN_A_WINDOW, LEAST_WINDOWS = 10, 10
"""Steps of coarse times, and mean gaps, that a window of counts has at least."""


class Process(NamedTuple):
    """An arrival process, how its parameter was found, and how far its gaps are from the trace's:
    relative errors, null where the trace's gap is 0, and the distance of distribution functions."""

    family: str
    by: str
    settings: dict[str, Any]
    errors: dict[str, float | None]
    ks: float


class ArrivalFit(NamedTuple):
    """The process chosen, of those tried, and the mean rate in requests/s, null where the trace has
    none. `gap_cv` is null below 30 gaps. Times never closer than a coarse `step_s` but at one
    moment leave `dispersion` to tell burstiness by: the variance / mean of counts in windows."""

    chosen: Process
    tried: list[Process]
    rate_rps: float | None
    gap_cv: float | None
    step_s: float | None
    dispersion: float | None
    peak_to_mean: float | None

    @property
    def notes(self) -> list[str]:
        """Sentences on what the fit does not say."""
        said = []
        if self.rate_rps is None:
            said.append("All requests arrive at one moment: set rate_rps before it runs.")
        elif self.gap_cv is None:
            said.append(f"Below {LEAST_GAPS} gaps there is no telling how bursty they are.")
        if self.step_s is not None:
            said.append(
                f"Times are equal or at least {self.step_s:g} s apart, so that gaps say little: "
                "burstiness is from the counts in windows."
            )
        elif self.chosen.ks > FAR_OFF and self.gap_cv is not None:
            said.append(
                "No process here is near the gaps: for the trace's own times, make the file's "
                "arrivals {_target_: workloads.arrivals.trace.TraceArrivals, path: FILE}."
            )
        if self.peak_to_mean is not None:
            said.append(f"The fit has one mean rate; the trace's busiest {WINDOW_S:.0f} s have "
                        f"{self.peak_to_mean:.2f} x its mean.")  # fmt: skip
        return said


def fit_arrivals(times_ns: Ints) -> ArrivalFit:
    """Of times that ascend: the simplest process that is nearly as near as the nearest."""
    times_s = (times_ns - times_ns[0]) / NS_PER_S
    gaps_s, span_s = np.diff(times_ns) / NS_PER_S, float(times_s[-1])
    if not span_s:
        poisson = Process("poisson", "", _poisson(), {}, 0.0)
        return ArrivalFit(poisson, [poisson], None, None, None, None, None)
    rate_rps = len(gaps_s) / span_s
    cv = float(gaps_s.std() / gaps_s.mean()) if len(gaps_s) >= LEAST_GAPS else None
    step_s = _coarse_step_s(np.diff(times_ns))
    dispersion = None
    if step_s is not None:
        dispersion = _dispersion(times_s, step_s, rate_rps)
    guesses = _guesses(gaps_s, cv, step_s, dispersion)
    tried = [_judged(*guess, gaps_s, rate_rps) for guess in guesses]
    chosen = tried[-1] if step_s is not None else _nearest(tried)
    return ArrivalFit(chosen, tried, rate_rps, cv, step_s, dispersion, peak_to_mean(times_s))


def _nearest(tried: list[Process]) -> Process:
    best = min(process.ks for process in tried)
    return next(process for process in tried if process.ks <= best + NEARLY_AS_GOOD)


def _guesses(
    gaps_s: Floats, cv: float | None, step_s: float | None, dispersion: float | None
) -> list[tuple[str, str, dict[str, Any]]]:
    """Family, how it was found, and settings, the simplest first."""
    poisson = ("poisson", "rate", _poisson())
    if step_s is not None:
        if not dispersion:
            return [poisson]
        return [poisson, ("gamma", "counts", _gamma(1 / dispersion))]
    if cv is None:
        return [poisson]
    constant = ("constant", "rate", {"_target_": f"{ARRIVALS}.constant.ConstantArrivals"})
    if not cv:
        return [constant]
    apart = gaps_s[gaps_s > 0]
    return [
        constant,
        poisson,
        ("gamma", "likelihood", _gamma(gamma_shape(apart, np.ones(len(apart))))),
        ("gamma", "cv", _gamma(cv**-2)),
    ]


def _judged(
    family: str, by: str, settings: dict[str, Any], gaps_s: Floats, rate_rps: float
) -> Process:
    process: Arrivals = make(settings, "workload.arrivals")
    chunks = process.times_ns(stream(0, "arrivals"), rate_rps)
    drawn = np.diff(np.array(list(islice(seconds(chunks), DRAWN + 1))))
    return Process(family, by, settings, _errors(gaps_s, drawn), _ks_distance(gaps_s, drawn))


def _errors(wanted: Floats, found: Floats) -> dict[str, float | None]:
    errors: dict[str, float | None] = {}
    for name, share in FITTED.items():
        want, have = (float(np.quantile(x, share, method="inverted_cdf")) for x in (wanted, found))
        errors[name] = have / want - 1 if want else None
    return errors


def _ks_distance(some: Floats, others: Floats) -> float:
    """Largest difference of the two's shares at or below a value (Kolmogorov and Smirnov's)."""
    values = np.concatenate([some, others])
    shares = (np.searchsorted(np.sort(x), values, side="right") / len(x) for x in (some, others))
    return float(np.abs(np.subtract(*shares)).max())


def _poisson() -> dict[str, Any]:
    return {"_target_": f"{ARRIVALS}.poisson.PoissonArrivals"}


def _gamma(burstiness: float) -> dict[str, Any]:
    rounded = float(f"{np.clip(burstiness, *BURSTINESS):.4g}")
    return {"_target_": f"{ARRIVALS}.gamma.GammaArrivals", "burstiness": rounded}


def _coarse_step_s(gaps_ns: Ints) -> float | None:
    """The shortest gap that is not 0, where it is long beside the mean and others are 0 or, as it
    is, multiples of a long time."""
    apart = gaps_ns[gaps_ns > 0]
    least, coarse = int(apart.min()), COARSE * float(gaps_ns.mean())
    if least <= coarse or least == gaps_ns.min() == gaps_ns.max():
        return None
    shared = len(apart) < len(gaps_ns) or int(np.gcd.reduce(apart)) > coarse
    return least / NS_PER_S if shared else None


def _dispersion(times_s: Floats, step_s: float, rate_rps: float) -> float | None:
    """Variance / mean of the counts in windows: in long ones, the square of the gaps' cv (Cox and
    Lewis, 1966, chapter 4). None below 10 windows."""
    width_s = IN_A_WINDOW * max(step_s, 1 / rate_rps)
    counts = windows(times_s, width_s).sums
    return float(counts.var() / counts.mean()) if len(counts) >= LEAST_WINDOWS else None
