"""Bandwidth by hand, and the CSV."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from bench.kernels.rows import COLUMNS, Device, Row, in_order, write_csv
from bench.kernels.shape import Shape

DEVICE = Device("NVIDIA H200", copy_gb_s=4000.0, floor_us=2.5)
SHAPE = Shape(batch=64, context=32_768, heads=32, kv_heads=8, head_dim=128, dtype="bf16")
TIMED = Row("mine", SHAPE, 16, "timed", 3000.0, 2990.0, 3050.0, 0.004)


def test_bandwidth_is_bytes_of_k_and_v_over_time() -> None:
    """64 x 32,768 tokens of 4,096 bytes are 8.59 GB: in 3 ms 2,863 GB/s, 71.6 % of 4,000."""
    assert TIMED.gb_s == pytest.approx(8.589934592 / 0.003)
    assert TIMED.copy_share(DEVICE) == pytest.approx(0.7158, abs=1e-4)


def test_what_was_not_timed_has_none() -> None:
    row = Row("mine", SHAPE, 16, "left out", note="no")
    assert row.gb_s is None
    assert row.copy_share(DEVICE) is None


def test_a_row_survives_its_way_as_json() -> None:
    assert Row.from_dict(json.loads(json.dumps(asdict(TIMED)))) == TIMED


def test_order_is_by_shape_then_kernel_then_block_size() -> None:
    small = Shape(1, 512, 32, 8, 128, "bf16")
    shuffled = [
        Row("b", SHAPE, None, "timed"),
        Row("a", small, 64, "timed"),
        Row("a", SHAPE, 8, "timed"),
        Row("b", small, None, "timed"),
        Row("a", small, 8, "timed"),
    ]
    ordered = [(row.provider, row.shape.batch, row.block_size) for row in in_order(shuffled)]
    assert ordered == [("b", 1, None), ("a", 1, 8), ("a", 1, 64), ("b", 64, None), ("a", 64, 8)]


def test_the_csv_has_numbers_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    rows = [TIMED, Row("SDPA", SHAPE, None, "failed", note="said, so")]
    write_csv(path, rows, DEVICE, "llama3_8b", {"mine": "triton 3.8.0"})
    with path.open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert tuple(first) == COLUMNS
    assert (first["version"], second["version"]) == ("triton 3.8.0", "")
    assert first["kv_bytes"] == "8589934592"
    assert first["gb_s"] == "2863.31"
    assert first["copy_share"] == "0.715828"
    assert (second["block_size_tokens"], second["us"], second["gb_s"]) == ("", "", "")
    assert (second["status"], second["note"]) == ("failed", "said, so")
