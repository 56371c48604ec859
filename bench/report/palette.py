"""Colours that mean the same thing in every figure: one a backend, one a use of KV memory.

Backends use Okabe and Ito's palette, and shades near it, which people with the common
colour-vision deficiencies can tell apart. Uses of memory have hatches as well, so that they also
survive a black-and-white print.
"""

from __future__ import annotations

import colorsys
import zlib
from dataclasses import dataclass

BACKEND_COLOURS = {
    "orca_max": "#8C3B00",
    "orca_pow2": "#A65E2E",
    "orca_oracle": "#C08552",
    "transformers_dynamic": "#4C5E67",
    "transformers_static": "#A8243A",
    "contiguous": "#D55E00",
    "contiguous_expandable": "#E69F00",
    "bucketed": "#CC79A7",
    "vmm": "#56B4E9",
    "paged": "#0072B2",
    "paged_prefix": "#009E73",
    "paged_radix": "#6A3D9A",
    "vllm": "#6A25F4",
    "vllm_prefix": "#9C6EF7",
}


@dataclass(frozen=True)
class MemoryUse:
    """One term of the KV budget. `share` is its key in a summary, `column` in the timeline."""

    share: str
    column: str
    label: str
    colour: str
    hatch: str


MEMORY_USES = (
    MemoryUse("token_states", "token_states_bytes", "token states", "#3B7D6E", ""),
    MemoryUse("cached", "cached_bytes", "cached", "#A5D6C1", "--"),
    MemoryUse("reservation", "reservation_bytes", "reservation", "#F0C45C", "//"),
    MemoryUse("internal", "internal_bytes", "internal", "#B5483A", "\\\\"),
    MemoryUse("undetermined", "undetermined_bytes", "undetermined", "#D8A7B1", ".."),
    MemoryUse("rounding", "rounding_bytes", "rounding", "#7E6AA5", "xx"),
    MemoryUse("external", "free_bytes", "external", "#B4B9C0", ""),
)


@dataclass(frozen=True)
class Theme:
    """The colours of a figure's paper and ink."""

    paper: str
    ink: str
    muted: str
    grid: str


LIGHT = Theme("#FFFFFF", "#1D2129", "#5B6470", "#DFE3E8")


def backend_colour(name: str) -> str:
    """The colour of a backend, as `#RRGGBB`. One that is not listed gets a colour of its own that
    depends on nothing but its name."""
    if name in BACKEND_COLOURS:
        return BACKEND_COLOURS[name]
    seed = zlib.crc32(name.encode())
    hue, lightness = seed % 360 / 360, 0.40 + seed // 360 % 3 * 0.08
    red, green, blue = colorsys.hls_to_rgb(hue, lightness, 0.45)
    return f"#{round(red * 255):02X}{round(green * 255):02X}{round(blue * 255):02X}"


def backend_order(name: str) -> tuple[int, str]:
    """Sort key: the known backends from the simplest to the most elaborate, then the others."""
    known = list(BACKEND_COLOURS)
    return (known.index(name) if name in known else len(known), name)
