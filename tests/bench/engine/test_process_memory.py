"""Paged KV on the CPU, seen by the operating system: the pool and the activations, little else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_the_peak_is_the_pool_and_the_activations_of_the_largest_step() -> None:
    """Tensors are mapped one by one here. As it is by default, the C library keeps some of what was
    freed for tensors to come, and the process grows by a quarter more."""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the peak of a process cannot be reset here: that takes Linux's /proc")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MALLOC_MMAP_THRESHOLD_": str(128 << 10)}
    command = [sys.executable, "-m", "tests.bench.engine.process_memory"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seen = json.loads(done.stdout)
    assert 0.98 * seen["pool"] < seen["touched"] <= seen["pool"]
    assert seen["activations"] > 0.25 * seen["touched"]  # else 5 % would not show them
    assert seen["growth"] == pytest.approx(seen["touched"] + seen["activations"], rel=0.05)
