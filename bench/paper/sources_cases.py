"""What the figure of fragmentation sources compares: runs, allocator settings, and quantities."""

from __future__ import annotations

from typing import NamedTuple

TRAFFIC_S = 300.0
TRAFFIC = ("model=llama3_8b", "gpu=a100_80gb", "workload=mixed", "backend=paged",
           "sample_interval_s=1")  # fmt: skip
KINDS = ("chat", "rag", "code")
MEAN_TOKENS = {"prompt": 1784, "output": 183}
"""Of all requests of `mixed`: 0.6 x 1,154.7 + 0.25 x 3,163 + 0.15 x 2,002.4 tokens in, and
0.6 x 210.9 + 0.25 x 208 + 0.15 x 28.7 out."""
FIXED = tuple(
    override
    for kind in KINDS
    for override in (
        f"workload/kinds@workload.kinds.{kind}=batch",
        *(f"workload.kinds.{kind}.{part}.tokens={n}" for part, n in MEAN_TOKENS.items()),
    )
)
WHOLE = ("engine.prefill=whole",)
BUFFERS = ("backend=contiguous", "backend.layout=sequence")
EXACT = (*BUFFERS, "backend.reserve=oracle")
GROW = (*BUFFERS, "backend.reserve=grow")


class Case(NamedTuple):
    """What one run has more than its reference (a case's key), and what folklore says of it."""

    key: str
    label: str
    overrides: tuple[str, ...] = ()
    reference: str | None = "base"
    folklore: str | None = None


CASES = (
    Case("fixed", "fixed lengths", FIXED, None),
    Case("base", "variable lengths", (), "fixed", "high"),
    Case("fixed_whole", "fixed lengths, prompts whole", (*FIXED, *WHOLE), None),
    Case("whole", "variable lengths, prompts whole", WHOLE, "fixed_whole", "high"),
    Case("growing_kv", "growing KV, another cache", ("sources=growing_kv",), folklore="fatal"),
    Case("exact", "KV of known lengths, the only cache", EXACT, None),
    Case("grow", "growing KV, the only cache", GROW, "exact", "fatal"),
    Case("batch_sizes", "batch sizes", ("sources=batch_sizes",), folklore="medium"),
    Case("lora", "LoRA adapters", ("sources=lora",), folklore="medium"),
    Case("speculative", "speculative decoding", ("sources=speculative",), folklore="medium"),
    Case("beams", "beam fork and free", ("sources=beams",), folklore="medium"),
    Case("graphs", "compile and graph buffers", ("sources=graphs",), folklore="low"),
)  # fmt: skip
LABELS = {case.key: case.label for case in CASES}


class Setting(NamedTuple):
    """A setting of the allocator, and how it is drawn."""

    panel: str
    alloc_conf: str
    colour: str
    marker: str


SETTINGS = (
    Setting("allocator's default", "", "#D55E00", "o"),
    Setting("expandable segments", "expandable_segments:True", "#0072B2", "s"),
)
MEAN, PEAK, END, PEAKS, ADDED, RANK, HELD, CALLS, RETRIES = (
    "reserved - allocated, mean over time", "reserved - allocated, peak",
    "reserved - allocated, at the end", "peak reserved - peak allocated",
    "added to peak reserved - peak allocated", "rank by what is added",
    "held by the source, peak", "driver calls", "retries after a refused allocation",
)  # fmt: skip
