"""`python -m bench.paper.fit`: the step overhead of `costs=sosp23`.

Bisects for the one number it is fitted to; what it printed is in docs/figures.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bench.paper.fig13 import PUBLISHED, RATES_RPS
from bench.paper.setups import OPT_13B, SHAREGPT
from bench.paper.systems import VLLM
from bench.paper.task import Point, Task

RANGE_US = (0, 20_480)
STEP_US = 20


def mean_batch(overhead_us: int, console: Console) -> float:
    """vLLM's all-time mean batch on ShareGPT at 2 requests/s with this overhead, of one hour."""
    point = Point(
        f"step_overhead_us={overhead_us}",
        (*OPT_13B.overrides, f"workload={SHAREGPT.workload}", *VLLM.overrides,
         f"costs.step_overhead_us={overhead_us}"),
        RATES_RPS[SHAREGPT],
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="fragbench-fit-") as folder:
        runs = Task(Path(folder) / "fit", console, ["python", "-m", "bench.paper.fit"]).run([point])
        mean = runs[point.name].number("batch", "mean")
    assert mean is not None, "a run with requests has a batch"
    return mean


def bisect(value: Callable[[int], float], wanted: float) -> int:
    """Where the rising `value` reaches `wanted`, to STEP_US, within RANGE_US."""
    low, high = RANGE_US
    while high - low > STEP_US:
        middle = (low + high) // 2
        low, high = (middle, high) if value(middle) < wanted else (low, middle)
    return high


def main() -> None:
    """Prints each overhead that was tried with its mean batch, and the one that fits."""
    console = Console(stderr=True, quiet=True)
    wanted = PUBLISHED[SHAREGPT][VLLM]

    def tried(overhead_us: int) -> float:
        mean = mean_batch(overhead_us, console)
        print(f"{overhead_us:6d} us: {mean:.3f} requests", flush=True)
        return mean

    print(f"step_overhead_us={bisect(tried, wanted)} for {wanted} requests")


if __name__ == "__main__":
    main()
