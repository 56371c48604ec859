"""One contiguous buffer a sequence, its length rounded up to a bucket.

A full bucket moves to the next one: a new buffer, a copy, the old one freed. Static shapes are
why servers do so (compiled kernels, CUDA graphs), and activations are padded likewise.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import ClassVar

from backends.base import BackendError, Demand, KvLayout
from backends.checks import integer
from backends.contiguous import ContiguousBuffers

FIRST_BUCKET_TOKENS = 128


class Bucketed(ContiguousBuffers):
    """`buckets` are lengths in tokens, ascending; null doubles from 128 up to max_model_len."""

    activation_buckets: ClassVar[bool] = True

    def __init__(
        self,
        *,
        name: str = "bucketed",
        buckets: Sequence[int] | None = None,
        layout: str = "layer",
        alloc_conf: str = "",
    ) -> None:
        super().__init__(name=name, arena="torch", layout=layout, alloc_conf=alloc_conf)
        self._wanted = None if buckets is None else _ascending(buckets)

    def start(self, layout: KvLayout) -> None:
        self._buckets = _up_to(layout.max_model_len, self._wanted or _doubling())
        super().start(layout)

    def _slots(self, tokens: int, demand: Demand) -> int:
        return self._buckets[bisect_left(self._buckets, tokens)]


def _doubling() -> list[int]:
    return [FIRST_BUCKET_TOKENS << i for i in range(24)]


def _up_to(max_model_len: int, buckets: Sequence[int]) -> list[int]:
    return [bucket for bucket in buckets if bucket < max_model_len] + [max_model_len]


def _ascending(buckets: object) -> list[int]:
    if not isinstance(buckets, Sequence) or isinstance(buckets, str) or not buckets:
        raise BackendError(
            f"backend.buckets={buckets!r} is not a list of lengths: "
            "give ascending numbers of tokens such as [128,256,512], or null to double from 128"
        )
    lengths = [integer("backend.buckets", b, 1, 1 << 24, "tokens") for b in buckets]
    if lengths != sorted(set(lengths)):
        raise BackendError(
            f"backend.buckets={lengths} does not ascend: give each length in tokens once, "
            "shortest first"
        )
    return lengths
