"""The systems of the PagedAttention paper (section 6.1), as our backends and engine settings."""

from __future__ import annotations

from typing import NamedTuple


class System(NamedTuple):
    """A name for folders, the name that the paper writes, what makes it here, and how it is drawn
    (colours of Okabe and Ito's palette)."""

    key: str
    label: str
    overrides: tuple[str, ...]
    colour: str
    marker: str


VLLM = System("vllm", "vLLM", ("backend=paged",), "#0072B2", "o")
ORACLE = System("orca_oracle", "Orca (Oracle)", ("backend=orca_oracle",), "#009E73", "s")
POW2 = System("orca_pow2", "Orca (Pow2)", ("backend=orca_pow2",), "#E69F00", "^")
MAX = System("orca_max", "Orca (Max)", ("backend=orca_max",), "#D55E00", "v")
SHARED_PREFIX = System(
    "vllm", "vLLM, prefix shared", ("backend=paged_prefix",), VLLM.colour, VLLM.marker
)
# "As large as possible" a batch: as many maximum-length buffers as memory has room for.
FASTER_TRANSFORMER = System(
    "ft", "FasterTransformer", ("backend=orca_max", "engine.batching=static"), "#CC79A7", "D"
)
