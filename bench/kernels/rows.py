"""What was measured of one implementation at one shape."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bench.kernels.shape import Shape

Status = Literal["timed", "left out", "failed"]

COLUMNS = ("device", "provider", "version", "model", "dtype", "batch", "context_tokens",
           "block_size_tokens", "heads", "kv_heads", "head_dim", "kv_bytes", "us", "us_p20",
           "us_p80", "gb_s", "copy_gb_s", "copy_share", "floor_us", "relative_error", "status",
           "note")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Device:
    """The GPU: bytes read and written a second by a copy (1e9), and the least time that can be
    measured, in microseconds."""

    name: str
    copy_gb_s: float
    floor_us: float


@dataclass(frozen=True, slots=True)
class Row:
    """`block_size` is None where K and V are contiguous. Times, in microseconds, are None unless
    it was timed; `note` says why not. `relative_error` is that of the output."""

    provider: str
    shape: Shape
    block_size: int | None
    status: Status
    us: float | None = None
    us_p20: float | None = None
    us_p80: float | None = None
    relative_error: float | None = None
    note: str = ""

    @property
    def gb_s(self) -> float | None:
        """Bytes of K and V read a second, in 1e9; None if it was not timed."""
        return self.shape.kv_bytes / self.us / 1000 if self.us else None

    def copy_share(self, device: Device) -> float | None:
        """Of the device's copy bandwidth. A copy writes as much as it reads, which memory does
        less fast than reading alone: above 1 is possible."""
        return None if self.gb_s is None else self.gb_s / device.copy_gb_s

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Row:
        """The row that `dataclasses.asdict` gave."""
        return cls(**{**data, "shape": Shape(**data["shape"])})


def in_order(rows: Iterable[Row]) -> list[Row]:
    """By shape, then implementation, then block size."""
    found = list(rows)
    providers = list(dict.fromkeys(row.provider for row in found))
    return sorted(
        found,
        key=lambda row: (row.shape.batch, row.shape.context, providers.index(row.provider),
                         row.block_size or 0),
    )  # fmt: skip


def write_csv(
    path: Path, rows: Iterable[Row], device: Device, model: str, versions: Mapping[str, str]
) -> None:
    """One line a row; numbers have six significant digits, what is undefined is empty."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            shape = row.shape
            writer.writerow(
                [device.name, row.provider, versions.get(row.provider, ""), model, shape.dtype,
                 shape.batch, shape.context, row.block_size, shape.heads, shape.kv_heads,
                 shape.head_dim, shape.kv_bytes,
                 *map(_digits, (row.us, row.us_p20, row.us_p80, row.gb_s, device.copy_gb_s,
                                row.copy_share(device), device.floor_us, row.relative_error)),
                 row.status, row.note]
            )  # fmt: skip


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
