"""The virtual GPU has the card's memory, and a card that does not compute is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.experiment import compose_cells
from bench.gpu_check.card import Card, Device, card_from
from bench.gpu_check.processes import Jobs, PartError

JOBS = "bench.gpu_check.card_job"


def test_what_is_read_from_the_virtual_twin_is_the_card(card: Card, twin: Device) -> None:
    with Jobs(twin, 60, print) as jobs:
        found = card_from(jobs.run(f"{JOBS}:describe_card", {}))
    versions = {"torch": found.torch, "cuda": found.cuda, "driver": found.driver}
    assert found == replace(card, **versions)
    assert found.torch[0].isdigit()


def test_a_card_that_computes_nothing_is_refused(twin: Device) -> None:
    """As the virtual GPU, which reads as zeros."""
    with Jobs(twin, 60, print) as jobs, pytest.raises(PartError, match="16,777,216 ones came to 0"):
        jobs.run(f"{JOBS}:read_card", {})


@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA Card of 2030 (PCIe)"])
def test_runs_are_given_the_card_that_is_there(card: Card, name: str, tmp_path: Path) -> None:
    card = replace(card, name=name)
    asked = [*card.virtual_overrides(), "device=cpu", f"out={tmp_path / 'out'}"]
    (cell,), _ = compose_cells(asked, [])
    gpu = cell.config["gpu"]
    assert gpu["device_name"] == name
    assert gpu["memory_gib"] == 24
    assert gpu["context_gib"] == 1
    assert card.option == ("h200_141gb" if name == "NVIDIA H200" else None)
