"""Part 3: the same greedy tokens from every backend on the card, and from the CPU.

In fp32, where a token may differ from another run's only where its logit was as good as the best.
What 16 bits make of it is counted and not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bench.device.launcher import Finished
from bench.gpu_check.part import Task, Verdict
from bench.gpu_check.processes import Jobs, PartError, cause
from bench.metrics.records import write_json

TIES = 1e-4
"""Two logits this close may change places: as tests/bench/engine/test_model_executor.py has it."""

MIB = 1 << 20


class Way(NamedTuple):
    """A backend: its class, its memory (the least that 2 MiB pages allow, so that requests wait
    and are preempted) and what it asks of the allocator."""

    backend: str
    budget_bytes: int = 16 * MIB
    alloc_conf: str = ""


WAYS = {
    "contiguous": Way("backends.contiguous:Contiguous"),
    "contiguous_expandable": Way(
        "backends.contiguous:Contiguous", alloc_conf="expandable_segments:True"
    ),
    "bucketed": Way("backends.bucketed:Bucketed"),
    "vmm": Way("backends.vmm:Vmm", 128 * MIB),
    "paged": Way("backends.paged:Paged"),
    "paged_prefix": Way("backends.paged_prefix:PagedPrefix"),
    "paged_radix": Way("backends.paged_radix:PagedRadix"),
}
JOB = "bench.gpu_check.token_job:greedy_tokens"

Tokens = list[list[int]]


def check(task: Task, limit_s: float) -> Verdict:
    """Every backend's tokens in fp32 as good as the CPU's."""
    with Jobs(task.real, limit_s, task.say, task.folder / "tokens.log") as jobs:
        on_cpu, *exact_runs = jobs.run_all(JOB, [_on_cpu(), *_on_card("fp32")])
        rounded_runs = jobs.run_all(JOB, _on_card("bf16"))
    if on_cpu.status != "ok":
        raise PartError(f"there are no tokens of the CPU: {cause(on_cpu)}")
    exact = dict(zip(WAYS, exact_runs, strict=True))
    rounded = dict(zip(WAYS, rounded_runs, strict=True))
    results = {"cpu": on_cpu.result, "fp32": _results(exact), "bf16": _results(rounded)}
    write_json(task.folder / "tokens.json", results)
    lost = [
        f"{name} in {dtype}: {cause(finished)}"
        for dtype, all_of in (("fp32", exact), ("bf16", rounded))
        for name, finished in all_of.items()
        if finished.status != "ok"
    ]
    return judge(on_cpu.result, _results(exact), _results(rounded), lost)


def _on_cpu() -> tuple[dict[str, Any], str]:
    return _payload(WAYS["paged"], "cpu", "fp32"), ""


def _on_card(dtype: str) -> list[tuple[dict[str, Any], str]]:
    """All backends at once: each takes little of the card, and no time is measured."""
    return [(_payload(way, "cuda", dtype), way.alloc_conf) for way in WAYS.values()]


def _payload(way: Way, device: str, dtype: str) -> dict[str, Any]:
    sized = {"backend": way.backend, "budget_bytes": way.budget_bytes}
    return {**sized, "device": device, "dtype": dtype}


def _results(ended: Mapping[str, Finished]) -> dict[str, Any]:
    return {name: each.result for name, each in ended.items() if each.status == "ok"}


def judge(
    on_cpu: Mapping[str, Any],
    exact: Mapping[str, Any],
    rounded: Mapping[str, Any],
    lost: Sequence[str],
) -> Verdict:
    """By the fp32 runs; `lost` says which gave nothing."""
    if not exact:
        raise PartError("; ".join(["no backend gave tokens in fp32", *lost]))
    gaps = {name: float(each["worst_gap"]) for name, each in exact.items()}
    worst = max(gaps, key=gaps.__getitem__)
    reference = on_cpu["tokens"]
    figures = [
        f"{len(exact)} backends x {len(reference)} requests in fp32: "
        f"{_differing([each['tokens'] for each in exact.values()], reference)} with a token other "
        f"than the CPU's, the worst {gaps[worst]:.1g} below the best logit ({worst}; {TIES:g} is "
        f"a tie), {sum(each['preemptions'] for each in exact.values())} preemptions"
    ]
    if rounded:
        first = next(iter(rounded.values()))["tokens"]
        others = _differing([each["tokens"] for each in rounded.values()], first)
        figures.append(f"in bf16 {others} differ from {next(iter(rounded))}'s")
    figures += lost
    return Verdict(not lost and gaps[worst] <= TIES, "; ".join(figures))


def _differing(of_backends: Sequence[Tokens], reference: Tokens) -> int:
    """Requests, of all backends together, whose tokens are not the reference's."""
    return sum(
        ours != theirs
        for tokens in of_backends
        for ours, theirs in zip(tokens, reference, strict=True)
    )
