"""The numbers a report shows: where each is in a summary, its unit, its formula, and why one may
be undefined. The tables, `comparison.csv` and the page's formulas all come from this list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bench.report.results import OUTCOMES, Run, mean_of
from bench.report.statistics import Estimate, mean

P99_SAMPLES = 100
GIB = 1 << 30


@dataclass(frozen=True)
class Quantity:
    """One number of a run. `column` is its name in `comparison.csv` and ends with its unit;
    `scale` turns it into `unit`, the unit that people read; `digits` are those after the point,
    None for three significant ones."""

    column: str
    heading: str
    unit: str
    formula: str
    of_one: Callable[[Run], float | None]
    why_undefined: Callable[[Run], str]
    better: Literal["higher", "lower"] | None = None
    scale: float = 1.0
    digits: int | None = None
    modelled: bool = False

    def read(self, run: Run) -> float | None:
        """The number, of repeats the mean; None where it is undefined."""
        return mean_of(run, self.of_one)

    def estimate(self, run: Run) -> Estimate | None:
        """The number with its interval over repeats; None where it is undefined."""
        values = [value for each in run.each if (value := self.of_one(each)) is not None]
        return mean(values) if len(values) == len(run.each) else None

    def shown(self, run: Run) -> str | None:
        """The number as a person reads it, without its unit; None where it is undefined."""
        value = self.read(run)
        return None if value is None else format_number(value * self.scale, self.digits)


def format_number(value: float, digits: int | None = None) -> str:
    """`value` with `digits` after the point, or else with three significant ones.

    >>> format_number(1234.5), format_number(0.01234), format_number(7.0, 0)
    ('1,234', '0.0123', '7')
    """
    if digits is None:
        size = abs(value)
        digits = next((d for d, least in enumerate((100, 10, 1, 0.1)) if size >= least), 4)
        digits = 0 if value == 0 else digits
    return f"{value:,.{digits}f}"


def _at(*keys: str) -> Callable[[Run], float | None]:
    return lambda run: run.number(*keys)


def _count(outcome: str) -> Callable[[Run], float | None]:
    return lambda run: run.request_counts.get(outcome)  # of repeats their mean, as for all


def _not_recorded(run: Run) -> str:
    return "not recorded" if run.summary else "no summary.json"


def _why_no_latency(block: str, key: str) -> Callable[[Run], str]:
    def why(run: Run) -> str:
        count = run.number(block, "count")
        if count == 0:
            return "no completed request has it"
        if key == "p99" and count is not None and count < P99_SAMPLES:
            return f"a p99 takes {P99_SAMPLES} samples, there are {count:,.0f}"
        return _not_recorded(run)

    return why


def _why_no_share(run: Run) -> str:
    if run.completed and run.summary.get("memory_bound") is None:
        return "never memory-bound"
    return _not_recorded(run)


def _why_no_allocator(run: Run) -> str:
    if run.summary and run.summary.get("allocator") is None:
        return f"no allocator statistics with device={run.device}"
    return _not_recorded(run)


def _why_no_hits(run: Run) -> str:
    if run.completed and run.summary.get("prefix_cache") is None:
        return "no prefix cache"
    return _not_recorded(run)


def memory_bound_share(run: Run) -> float | None:
    """Share of the run's time spent memory-bound; 0 for a completed run that never was."""
    if run.completed and run.summary.get("memory_bound") is None:
        return 0.0
    return run.number("memory_bound", "share_of_time")


def wasted_share(run: Run) -> float | None:
    """Share of the KV budget that was neither a live token nor cached, while memory-bound."""
    return mean_of(run, _wasted_share)


def _wasted_share(run: Run) -> float | None:
    useful = run.number("memory_bound", "token_states")
    if useful is None:
        return None
    return 1 - useful - (run.number("memory_bound", "cached") or 0.0)


OUTCOME_FORMULAS = {
    "sent": "requests the workload sent",
    "completed": "all their output tokens arrived",
    "failed": "ended by an error",
    "cancelled": "ended by the client",
    "rejected": "could never fit, refused at once",
    "unfinished": "still open when the run ended",
}
REQUESTS = {
    key: Quantity(
        f"requests_{key}",
        key,
        "",
        OUTCOME_FORMULAS[key],
        _count(key),
        _not_recorded,
        digits=0,
    )
    for key in ("sent", *OUTCOMES)
}

REQUESTS_PER_S = Quantity(
    "requests_per_s",
    "requests/s",
    "",
    "completed requests / the run's time",
    _at("throughput", "requests_per_s"),
    _not_recorded,
    "higher",
    modelled=True,
)
OUTPUT_TOKENS_PER_S = Quantity(
    "output_tokens_per_s",
    "output tokens/s",
    "",
    "output tokens of completed requests / the run's time",
    _at("throughput", "output_tokens_per_s"),
    _not_recorded,
    "higher",
    modelled=True,
)
TOTAL_TOKENS_PER_S = Quantity(
    "total_tokens_per_s",
    "total tokens/s",
    "",
    "prompt and output tokens of completed requests / the run's time",
    _at("throughput", "total_tokens_per_s"),
    _not_recorded,
    "higher",
    modelled=True,
)


def _latency(block: str, heading: str, unit: str, formula: str) -> dict[str, Quantity]:
    """p50, p90 and p99 of one latency."""
    return {
        key: Quantity(
            f"{block.removesuffix('_s')}_{key}_s",
            f"{heading} {key}",
            unit,
            formula,
            _at(block, key),
            _why_no_latency(block, key),
            "lower",
            scale=1000.0 if unit == "ms" else 1.0,
            modelled=True,
        )
        for key in ("p50", "p90", "p99")
    }


TTFT = _latency("ttft_s", "TTFT", "s", "first token - sent")
TPOT = _latency(
    "tpot_s", "TPOT", "ms", "(last token - first token) / (output tokens - 1); needs 2 tokens"
)
E2E = _latency("e2e_s", "E2E", "s", "end - sent")
NORMALIZED_LATENCY = Quantity(
    "normalized_latency_mean_s_per_token",
    "normalized latency, mean",
    "s/token",
    "mean of E2E / output tokens",
    _at("normalized_latency_s", "mean"),
    _why_no_latency("normalized_latency_s", "mean"),
    "lower",
    modelled=True,
)

BOUND_TIME = Quantity(
    "memory_bound_time_share",
    "memory-bound",
    "% of time",
    "time in which the last reserve or extend was refused for want of memory / the run's time",
    memory_bound_share,
    _not_recorded,
    scale=100.0,
    digits=1,
)
SHARE_FORMULAS = {
    "token_states": "slots that hold a live token's K and V",
    "cached": "blocks kept for reuse that nobody owns (evictable: not waste)",
    "reservation": "slots held that their request fills later",
    "internal": "slots held that their request never fills",
    "undetermined": "slots held by requests still open when the run ended",
    "rounding": "allocated - requested: the allocator's or the arena's rounding",
    "external": "free bytes that a refused request could not use",
}
SHARES = {
    key: Quantity(
        f"{key}_share",
        key.replace("_", " "),
        "% of B",
        f"{formula}; share of B, mean over memory-bound time",
        _at("memory_bound", key),
        _why_no_share,
        "higher" if key == "token_states" else None,
        scale=100.0,
        digits=1,
    )
    for key, formula in SHARE_FORMULAS.items()
}
HELD_WASTE = Quantity(
    "held_waste_share",
    "held waste",
    "% of held",
    "1 - token states / KV memory held, over the whole run",
    _at("held_waste"),
    _not_recorded,
    "lower",
    scale=100.0,
    digits=1,
)
SHARING_SAVED = Quantity(
    "sharing_saved_share",
    "saved by sharing",
    "% of unshared",
    "KV memory that sequences and branches share / what they would hold without, over the run",
    _at("sharing", "saved"),
    _not_recorded,
    scale=100.0,
    digits=1,
)
HIT_RATE = Quantity(
    "prefix_hit_rate",
    "prefix hits",
    "% of tokens",
    "tokens found in the prefix cache / tokens of admitted requests, each admitted once",
    _at("prefix_cache", "hit_rate"),
    _why_no_hits,
    scale=100.0,
    digits=1,
)
BATCH_MEAN = Quantity(
    "batch_mean_requests",
    "mean batch",
    "requests",
    "requests running, mean over the time in which any ran",
    _at("batch", "mean"),
    _not_recorded,
    "higher",
    digits=1,
)
BATCH_MAX = Quantity(
    "batch_max_requests",
    "max batch",
    "requests",
    "most requests running at once",
    _at("batch", "max"),
    _not_recorded,
    digits=0,
)
BOUND_BATCH = Quantity(
    "memory_bound_batch_mean_requests",
    "mean batch, memory-bound",
    "requests",
    "requests running, mean over memory-bound time",
    _at("memory_bound", "batch_mean"),
    _why_no_share,
    "higher",
    digits=1,
)
PREEMPTIONS = Quantity(
    "preemptions",
    "preemptions",
    "",
    "running requests put back in the queue and computed again",
    _at("preemptions"),
    _not_recorded,
    digits=0,
)
OOMS = Quantity(
    "num_ooms",
    "OOMs",
    "",
    "torch's num_ooms: allocations that failed",
    _at("allocator", "num_ooms"),
    _why_no_allocator,
    digits=0,
)
RETRIES = Quantity(
    "num_alloc_retries",
    "alloc retries",
    "",
    "torch's num_alloc_retries: cached segments released, then tried again",
    _at("allocator", "num_alloc_retries"),
    _why_no_allocator,
    digits=0,
)
PEAK_RESERVED = Quantity(
    "peak_reserved_bytes",
    "peak reserved",
    "GiB",
    "most memory that torch had taken from the driver at once",
    _at("allocator", "peak_reserved_bytes"),
    _why_no_allocator,
    "lower",
    scale=1 / GIB,
    digits=2,
)
SIMULATED = Quantity(
    "simulated_s", "run's time", "s", "time on the run's clock", _at("simulated_s"), _not_recorded
)
WALL = Quantity("wall_s", "wall time", "s", "time it took to run", _at("wall_s"), _not_recorded)

ALL = (
    *REQUESTS.values(),
    REQUESTS_PER_S,
    OUTPUT_TOKENS_PER_S,
    TOTAL_TOKENS_PER_S,
    *TTFT.values(),
    *TPOT.values(),
    *E2E.values(),
    NORMALIZED_LATENCY,
    BOUND_TIME,
    *SHARES.values(),
    BOUND_BATCH,
    HELD_WASTE,
    SHARING_SAVED,
    HIT_RATE,
    BATCH_MEAN,
    BATCH_MAX,
    PREEMPTIONS,
    OOMS,
    RETRIES,
    PEAK_RESERVED,
    SIMULATED,
    WALL,
)
