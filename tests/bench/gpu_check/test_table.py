"""The short kernel table: its settings are those of `fragbench kernels`, and no table fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.device.probe import probe
from bench.gpu_check import table
from bench.gpu_check.card import REAL, Card
from bench.gpu_check.part import Task
from bench.gpu_check.processes import PartError
from bench.kernels.settings import read_settings


def test_its_settings_are_few_cases() -> None:
    settings = read_settings(table.SHORT)
    assert len(settings.shapes()) * len(settings.block_sizes) == 12


@pytest.mark.skipif(bool(probe().gpu_names), reason="this machine has a GPU")
def test_without_a_gpu_there_is_no_table(card: Card, tmp_path: Path) -> None:
    said: list[str] = []
    task = Task(tmp_path, card, REAL, REAL, said.append)
    with pytest.raises(PartError, match="exit code 2 and no table"):
        table.check(task, 100)
    assert "none" in said[-1]
