"""Where the tensors of exercises a and b lie: alone in a segment, or beside others."""

from __future__ import annotations

from typing import Any, NamedTuple

from bench.exercise.base import Number, Own
from bench.exercise.wording import amount

MIB = 1 << 20
SIZES = {
    "request_mib": Number(1024, 1, 1 << 20, "MiB", "what is asked for when every other is freed"),
    "large_mib": Number(64, 10, 1 << 16, "MiB", "a tensor with a segment of its own"),
    "small_mib": Number(2, 1, 9, "MiB", "a tensor that shares a segment of 20 MiB"),
    "earlier_mib": Number(1024, 20, 1 << 18, "MiB", "a buffer that was there before"),
}


class Layout(NamedTuple):
    """Where the tensors lie: said in the finding, and above a panel."""

    key: str
    where: str
    title: str


def layouts(own: Own) -> tuple[Layout, ...]:
    """All of them, with the sizes asked for."""
    large, small, earlier = (
        amount(own[name] * MIB) for name in ("large_mib", "small_mib", "earlier_mib")
    )
    return (
        Layout("own", f"tensors of {large} had a segment each",
               f"{large} in segments of their own"),
        Layout("left", f"tensors of {large} lay in segments that buffers of {earlier} had left",
               f"{large} in segments of {earlier}"),
        Layout("shared", f"tensors of {small} shared segments of 20 MiB",
               f"{small} in segments of 20 MiB"),
    )  # fmt: skip


def payload(layout: Layout, own: Own) -> dict[str, Any]:
    """Of the job."""
    sizes = {name.replace("_mib", "_bytes"): int(own[name]) * MIB for name in SIZES}
    return {"layout": layout.key, **sizes}
