"""The check of a real vLLM, with a virtual card in the place of the real one: `make test-vllm`."""

from __future__ import annotations

import csv
import functools
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bench.gpu_check.card import REAL, Card
from bench.gpu_check.part import Task, Verdict
from bench.gpu_check.vllm import MODES, TRAFFIC, compare

GIB = 1 << 30
MIB = 1 << 20
CARD = Card("NVIDIA A100-SXM4-40GB", 16 * GIB, 15 * GIB, "8.0", "2.14.0", "13.0", "driver 1")
SMALL = ("model.layers=2", "workload.num_requests=6", "gpu=a100_40gb", "gpu.memory_gib=16")
TAKEN = {"context_gib": 0.75, "modules_gib": 0.5, "graph_mib": 4.0}
"""Beside the allocator, by the one that stands for the real card."""
BLOCK_BYTES = 16 * 2 * (2 * 8 * 128 * 2)  # tokens, layers, K and V of 8 heads of 128 in 2 bytes


class Compared(NamedTuple):
    verdict: Verdict
    settings: dict[str, float]
    rows: list[dict[str, Any]]


@functools.cache
def compared() -> Compared:
    """Two virtual cards, of which one takes 0.5 GiB of context and nothing else."""
    on_card = ["device=virtual", *(f"gpu.{name}={value}" for name, value in TAKEN.items())]
    on_virtual = ["device=virtual", "gpu.context_gib=0.5"]
    with tempfile.TemporaryDirectory() as folder:
        task = Task(Path(folder), CARD, REAL, REAL, print)
        verdict = compare(task, on_card, on_virtual, [MODES], 900, (*TRAFFIC, *SMALL))
        settings = yaml.safe_load((task.folder / "vllm_gpu.yaml").read_text())
        with (task.folder / "vllm.csv").open(newline="") as file:
            return Compared(verdict, settings, list(csv.DictReader(file)))


def rows_of(quantity: str) -> list[dict[str, Any]]:
    return [row for row in compared().rows if row["quantity"] == quantity]


def test_calibration_recovers_what_the_card_takes_beside_the_allocator() -> None:
    assert compared().settings == {"memory_gib": 16.0} | TAKEN


def test_a_virtual_gpu_with_these_settings_agrees_in_every_number() -> None:
    assert len(rows_of("steps")) == 2
    assert {row["calibrated_difference"] for row in compared().rows} == {"0"}
    assert compared().verdict.passed


def test_modules_beyond_the_first_kernels_are_missing_from_the_blocks_of_the_card() -> None:
    # vLLM launches one kernel of 32 before it first looks.
    late_bytes = 31 / 32 * 0.5 * GIB
    (eager,) = [row for row in rows_of("num_gpu_blocks") if row["case"] == "eager"]
    assert abs(int(eager["difference"]) * BLOCK_BYTES - late_bytes) <= 2 * MIB


def test_what_is_scheduled_does_not_depend_on_the_card() -> None:
    for quantity in ("steps", "preemptions", "completed"):
        assert {row["difference"] for row in rows_of(quantity)} == {"0"}
    assert {row["card"] for row in rows_of("completed")} == {"6"}
