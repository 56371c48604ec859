"""What the figure of a vLLM's utilization compares, and what its numbers are called."""

from __future__ import annotations

from typing import NamedTuple


class System(NamedTuple):
    """A setting of PyTorch's allocator, and how it is drawn."""

    label: str
    key: str
    alloc_conf: str
    colour: str
    marker: str


SYSTEMS = (
    System("PyTorch's default", "default", "", "#D55E00", "o"),
    System("expandable segments", "expandable", "expandable_segments:True", "#0072B2", "s"),
)
UTILIZATIONS = (0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99)
X_IS = "gpu_memory_utilization"

BLOCKS, TOKENS, COMPLETED, DIED = (
    "KV blocks", "output tokens/s", "requests completed", "died in step",
)  # fmt: skip
WANTED, FREE, KEPT, KEPT_SHARE = (
    "wanted where it died", "free on the card where it died",
    "reserved but unallocated where it died", "the same, of all reserved",
)  # fmt: skip
PROFILED, TAKEN = (
    "peak of activations, as vLLM profiled it", "peak allocated beside weights and KV blocks",
)  # fmt: skip
UNUSED = "most reserved while serving - peak allocated"
FOR_A_POINT = "{} for a point of utilization more"
