"""What the colours of a memory map mean: the sizes of blocks, or the names a program gave them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.patches import Patch
from numpy.typing import NDArray

from bench.report.palette import LIGHT
from bench.snapshots.lifetimes import Lifetimes

MIB = 1 << 20
SIZES = (1 * MIB, 10 * MIB, 100 * MIB, 1024 * MIB)
SIZE_NAMES = (
    "blocks ≤ 1 MiB", "≤ 10 MiB", "≤ 100 MiB", "≤ 1 GiB", "> 1 GiB",
)  # fmt: skip
SIZE_COLOURS = ("#F5D547", "#C8691E", "#2FA7A0", "#2C5FA8", "#2A1149")
"""From light to dark; in each of their shades they differ with every colour-vision deficiency."""
LABEL_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#6A3D9A")
UNNAMED, UNNAMED_COLOUR = "no name", "#7D8590"
MANY, MANY_COLOUR = "other names", "#B0764A"
FREE, FREE_COLOUR = "reserved and free", "#D3D7DD"


@dataclass(frozen=True, slots=True)
class Kinds:
    """Names and colours; by size where `labels` is None."""

    names: tuple[str, ...]
    colours: tuple[str, ...]
    labels: dict[str, int] | None = None

    def of(self, blocks: Lifetimes, labels: Sequence[str]) -> NDArray[np.int64]:
        """For each block a place in `names`; `labels` are those of its history."""
        if self.labels is None:
            return np.searchsorted(SIZES, blocks.size)
        return np.array([self.labels[label] for label in labels])[blocks.label]

    def legend(self, shown: Collection[int]) -> list[Patch]:
        """A patch for each of the places that are shown, and for memory that is free."""
        patches = [
            Patch(color=self.colours[place], label=self.names[place]) for place in sorted(shown)
        ]
        free = Patch(facecolor=FREE_COLOUR, edgecolor=LIGHT.muted, linewidth=0.6, label=FREE)
        return [*patches, free]


BY_SIZE = Kinds(SIZE_NAMES, SIZE_COLOURS)


def kinds_of(labels: Sequence[Sequence[str]]) -> Kinds:
    """By name, if any history has names: the first seven each in a colour, others in one."""
    given = list(dict.fromkeys(name for each in labels for name in each if name))
    if not given:
        return BY_SIZE
    shown = given[: len(LABEL_COLOURS)]
    names, colours = [UNNAMED, *shown], [UNNAMED_COLOUR, *LABEL_COLOURS[: len(shown)]]
    if len(given) > len(shown):
        names, colours = [*names, MANY], [*colours, MANY_COLOUR]
    places = {"": 0} | {name: min(i, len(shown) + 1) for i, name in enumerate(given, 1)}
    return Kinds(tuple(names), tuple(colours), places)
