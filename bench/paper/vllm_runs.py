"""What figures of engine=vllm read off their runs."""

from __future__ import annotations

from typing import NamedTuple

from bench.paper.reading import number
from bench.report.results import Run

MIB = 1 << 20


class Death(NamedTuple):
    """The allocation that ended a run. `kept_mib` is what PyTorch had reserved and could not use
    for it, `kept_share` that of all it had reserved."""

    step: int
    wanted_mib: float
    free_mib: float
    kept_mib: float
    kept_share: float


def death(run: Run | None) -> Death | None:
    """None where a run did not die of an allocation."""
    incident = (
        next((each for each in run.incidents if each.get("ended_run")), None) if run else None
    )
    steps = number(run, "steps")
    if incident is None or steps is None:
        return None
    kept = incident["reserved_bytes"] - incident["allocated_bytes"]
    return Death(
        int(steps),
        incident["wanted_bytes"] / MIB,
        incident["driver_free_bytes"] / MIB,
        kept / MIB,
        kept / incident["reserved_bytes"],
    )


def kv_blocks(run: Run | None) -> float | None:
    """Blocks of vLLM's KV cache, its null block among them; None where it did not start."""
    return number(run, "vllm", "num_gpu_blocks")


def in_units(run: Run | None, unit_bytes: int, *keys: str) -> float | None:
    """A number of bytes in a summary, in larger units."""
    found = number(run, *keys)
    return None if found is None else found / unit_bytes


def peak_beside_kv_mib(run: Run | None) -> float | None:
    """Allocated at most beside weights and KV blocks: activations and vLLM's own buffers. Of a run
    that died: until then."""
    parts = ("allocator", "peak_allocated_bytes"), ("weights_bytes",), ("kv_budget_bytes",)
    peak, weights, kv = (number(run, *keys) for keys in parts)
    if peak is None or weights is None or kv is None:
        return None
    return (peak - weights - kv) / MIB
