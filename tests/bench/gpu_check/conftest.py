"""A virtual GPU in the place of the card, and on the other side."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.gpu_check.card import Card, Device, virtual_twin
from bench.gpu_check.part import Task
from tests.virtual_gpu import skip_without_virtual_gpu

GIB = 1 << 30


@pytest.fixture
def card() -> Card:
    return Card("NVIDIA H200", 24 * GIB, 23 * GIB, "9.0", "2", "13", "driver 1")


@pytest.fixture
def twin(card: Card) -> Device:
    skip_without_virtual_gpu()
    return virtual_twin(card)


@pytest.fixture
def task(tmp_path: Path, card: Card, twin: Device) -> Task:
    return Task(tmp_path, card, twin, twin, lambda line: None)
