"""Steps: a rate for a while, then another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workloads.arrivals.modulated import ModulatedArrivals, check_span_s
from workloads.settings import number, refusal

_NAME = "workload.arrivals.steps"
_LEAST_SHARE = 0.001


class StepArrivals(ModulatedArrivals):
    """`steps` are {duration_s, share} each: for so many seconds the rate is `share` x rate_rps, 0
    for none. After the last one its share stays, or with `repeat` the first one follows again. The
    mean rate is workload.rate_rps where the mean of the shares over time is 1.

    `burstiness` is that of gamma arrivals; 1 is Poisson.
    """

    def __init__(
        self,
        *,
        steps: Sequence[Mapping[str, float]],
        repeat: bool = False,
        burstiness: float = 1.0,
    ) -> None:
        durations_s, shares = zip(*_check_steps(steps), strict=True)
        again = _check_repeat(repeat)
        if not (any(shares) if again else shares[-1]):
            which = "largest" if again else "last"
            fix = "no request would come any more"
            raise refusal(f"The {which} share in {_NAME}", 0, "above 0", fix)
        super().__init__(
            durations_s=durations_s, shares=shares, repeat=again, burstiness=burstiness
        )


def _check_repeat(value: Any) -> bool:
    if not isinstance(value, bool):
        fix = "true starts the steps again, false keeps the last share"
        raise refusal("workload.arrivals.repeat", value, "true or false", fix)
    return value


def _check_steps(value: Any) -> list[tuple[float, float]]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        fix = "give some such as [{duration_s: 60, share: 0.5}, {duration_s: 60, share: 1.5}]"
        raise refusal(_NAME, value, "a list of at least one step", fix)
    return [_check_step(f"steps[{index}]", step) for index, step in enumerate(value)]


def _check_step(name: str, step: Any) -> tuple[float, float]:
    if not isinstance(step, Mapping) or step.keys() != {"duration_s", "share"}:
        fix = "give both, as in {duration_s: 60, share: 0.5}"
        raise refusal(f"workload.arrivals.{name}", step, "a mapping of duration_s and share", fix)
    fix = "it is how long the step lasts"
    duration_s = check_span_s(f"{name}.duration_s", step["duration_s"], 0.001, fix)
    share, unit, fix = step["share"], "(a share of workload.rate_rps)", "0 sends nothing"
    least = 0 if share == 0 else _LEAST_SHARE
    return duration_s, number(f"workload.arrivals.{name}.share", share, least, 1000, unit, fix)
