"""Workers and supervisors that are killed at any moment: what was recorded stays."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.bench.soak.killing import KilledSoak, check_whole, wait_until
from tests.virtual_gpu import skip_without_virtual_gpu


@pytest.fixture(autouse=True)
def _virtual_gpu() -> None:
    skip_without_virtual_gpu()


def test_ten_random_kills_lose_nothing_that_was_recorded(tmp_path: Path) -> None:
    rng = random.Random(0)
    with KilledSoak(tmp_path, "flush_s=0.2") as soak:
        for kill in range(10):
            soak.kill_at_random(rng, supervisor=kill % 5 == 2)
        soak.wait_for_completed()
        assert soak.stop() == 130
        check_whole(soak, 10)


@pytest.mark.long
def test_two_hundred_random_kills_lose_nothing_that_was_recorded(tmp_path: Path) -> None:
    rng = random.Random(1)
    with KilledSoak(tmp_path, "flush_s=0.2") as soak:
        for _ in range(200):
            soak.kill_at_random(rng, supervisor=rng.random() < 0.2)
        soak.wait_for_completed()
        assert soak.stop() == 130
        check_whole(soak, 200)


@pytest.mark.long
def test_what_a_kill_loses_is_at_most_five_seconds_old(tmp_path: Path) -> None:
    """Of wall time; with settings as they are by default."""
    rng = random.Random(2)
    with KilledSoak(tmp_path) as soak:
        for _ in range(6):
            newest = soak.out / wait_until(soak.segments)[-1].folder
            wait_until((newest / "checkpoint.json").exists)
            time.sleep(rng.uniform(0, 6))
            age_s = time.time() - (newest / "checkpoint.json").stat().st_mtime
            soak.kill_worker()
            assert age_s < 5
        soak.wait_for_completed()
        assert soak.stop() == 130
        check_whole(soak, 6)
