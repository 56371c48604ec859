"""Checks of sources' settings. All raise WorkloadError, as workloads/settings.py does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from workloads.settings import count, refusal

MAX_RANK = 1024
KV_BYTES = 2
"""Of a number of a draft model's K and V: 16 bits."""

SET_ASIDE_BY = {
    "lora": ("sources.lora.slots", "sources.lora.ranks"),
    "batch_sizes": ("sources.batch_sizes.kept_steps", "engine.max_num_seqs"),
}
"""What to lower where a source's planned bytes are too many."""


def choice_of(setting: str, value: Any, allowed: Sequence[str]) -> str:
    """`value`, or WorkloadError unless it is one of `allowed`."""
    if value not in allowed:
        raise refusal(setting, value, " or ".join(allowed), f"choose one, such as {allowed[0]}")
    return str(value)


def ranks_of(setting: str, value: Any) -> list[int]:
    """Ranks of adapters, or WorkloadError unless they are a list of one or more."""
    fix = "give a list such as [8,16,32]"
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise refusal(setting, value, "a list of ranks", fix)
    return [count(setting, rank, 1, MAX_RANK, "(the rank of a matrix)", fix) for rank in value]


class SideModel(NamedTuple):
    """A small model beside the one that is served, as far as its KV memory goes."""

    layers: int
    kv_heads: int
    head_dim: int

    @property
    def plane_bytes(self) -> int:
        """K (or V) of one token in one layer."""
        return self.kv_heads * self.head_dim * KV_BYTES

    @property
    def token_bytes(self) -> int:
        """K and V of one token in all layers."""
        return 2 * self.layers * self.plane_bytes


def side_model(source: str, layers: Any, kv_heads: Any, head_dim: Any) -> SideModel:
    """The model of a source's settings, or WorkloadError."""
    fix = "take it from the model's config.json"
    return SideModel(
        count(f"sources.{source}.layers", layers, 1, 1000, "layers", fix),
        count(f"sources.{source}.kv_heads", kv_heads, 1, 1000, "heads", fix),
        count(f"sources.{source}.head_dim", head_dim, 1, 4096, "numbers", fix),
    )
