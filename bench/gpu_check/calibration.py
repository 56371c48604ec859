"""What a card takes beside PyTorch's allocator, from runs of vLLM on it, as a GPU's settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from bench.device.build import MODULE_PARTS
from bench.gpu import GIB, MIB, PAGE_BYTES
from bench.gpu_check.card import Card
from bench.gpu_check.vllm_cells import Case, Cell

PARTS = 10_000
"""Of a GiB or MiB, to which sizes are rounded: less than a page of 2 MiB."""


class Calibration(NamedTuple):
    """Bytes of a card with which a virtual one has as much left when vLLM first looks at it, and
    at the end."""

    total_bytes: int
    context_bytes: int
    modules_bytes: int
    graph_bytes: float | None
    """None where no graph was captured."""

    def settings(self) -> dict[str, float]:
        """Fields of bench.gpu.Gpu, by name; those that are not known are left out. Sizes are
        rounded so that the pages of 2 MiB that come of them are those that were found."""
        found = {
            "memory_gib": _up(self.total_bytes / GIB),
            "context_gib": _up(self.context_bytes / GIB),
            "modules_gib": _up(self.modules_bytes / GIB),
        }
        if self.graph_bytes is not None:
            found["graph_mib"] = _down(self.graph_bytes / MIB)
        return found

    def overrides(self) -> list[str]:
        """Hydra's, for a virtual GPU that takes as much."""
        return [f"gpu.{name}={value}" for name, value in self.settings().items()]


def calibrate(cells: Mapping[Case, Cell]) -> Calibration | None:
    """None where no run without graphs was completed: with them it cannot be told what is of
    modules and what of graphs.

    What came after vLLM's first look, until the end of a run without graphs, is the code of kernels
    and what libraries such as cuBLAS keep; a run with graphs has on top what its graphs take. The
    virtual GPU has charged one of MODULE_PARTS by that look, and all when vLLM divides the rest.
    """
    eager = _first(cells, "eager")
    if eager is None:
        return None
    graphs = _first(cells, "graphs")
    late = max(eager["end_beside_bytes"] - eager["first_reading_beside_bytes"], 0)
    modules = round(late * MODULE_PARTS / (MODULE_PARTS - 1) / PAGE_BYTES) * PAGE_BYTES
    return Calibration(
        total_bytes=eager["total_bytes"],
        context_bytes=max(eager["end_beside_bytes"] - modules, 0),
        modules_bytes=modules,
        graph_bytes=None if graphs is None else _per_graph(eager, graphs),
    )


def _first(cells: Mapping[Case, Cell], mode: str) -> Mapping[str, int] | None:
    """The readings of the first completed run of a mode."""
    return next((c.found for case, c in cells.items() if case.mode == mode and c.found), None)


def _per_graph(eager: Mapping[str, int], graphs: Mapping[str, int]) -> float | None:
    if not graphs["graphs"]:
        return None
    return max(graphs["end_beside_bytes"] - eager["end_beside_bytes"], 0) / graphs["graphs"]


def _up(size: float) -> float:
    return math.ceil(size * PARTS) / PARTS


def _down(size: float) -> float:
    return math.floor(size * PARTS) / PARTS


def as_yaml(calibration: Calibration, card: Card, vllm: str) -> str:
    """A part of a file of conf/gpu/, and the same as overrides."""
    lines = [f"{name}: {value}" for name, value in calibration.settings().items()]
    return "\n".join([
        f"# {card}; vLLM {vllm}. For conf/gpu/{card.option or 'NAME'}.yaml, or as overrides:",
        f"# {' '.join(calibration.overrides())}",
        "# context_gib is what was there when vLLM first looked at the card, modules_gib what came",
        "# later: its KV blocks have so much less. graph_mib is of each of its graphs.",
        *lines,
        "",
    ])  # fmt: skip
