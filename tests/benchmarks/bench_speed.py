"""What a run's time is made of: steps, samples, requests drawn, and a matrix's start.

    make bench

Medians are printed and nothing is asserted: docs/performance.md has them, and what bounds them.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest

from backends.base import Backend, KvLayout
from backends.bucketed import Bucketed
from backends.contiguous import Contiguous
from backends.paged import Paged
from backends.paged_prefix import PagedPrefix
from backends.paged_radix import PagedRadix
from bench.experiment import compose_cells
from bench.metrics.recorder import Recorder
from bench.plugins import make
from tests.bench.engine.lab import Lab, limits

TOKEN_BYTES = 64
MAX_MODEL_LEN = 2048
BUDGET_BYTES = 256 * MAX_MODEL_LEN * TOKEN_BYTES + (4 << 20)
PROMPT_TOKENS, OUTPUT_TOKENS = 64, 1900
STEPS, ROUNDS = 200, 5
STRATEGIES = {
    "contiguous": lambda: Contiguous(layout="sequence"),
    "bucketed": lambda: Bucketed(layout="sequence"),
    "paged": Paged,
    "paged_prefix": PagedPrefix,
    "paged_radix": PagedRadix,
}


def decoding(backend: Backend, sequences: int) -> Lab:
    """An engine in host memory whose sequences have all begun to decode."""
    backend.start(KvLayout(1, TOKEN_BYTES, MAX_MODEL_LEN, BUDGET_BYTES, "cpu"))
    lab = Lab(backend, BUDGET_BYTES, TOKEN_BYTES, limits(), max_model_len=MAX_MODEL_LEN)
    lab.send(*[(PROMPT_TOKENS + number % 16, OUTPUT_TOKENS) for number in range(sequences)])
    lab.step()
    assert len(lab.engine.running) == sequences
    return lab


@pytest.mark.parametrize("sequences", [8, 64, 256])
@pytest.mark.parametrize("strategy", STRATEGIES)
def bench_decode_steps(benchmark: Any, strategy: str, sequences: int) -> None:
    """200 steps of so many decoding sequences."""

    def begin() -> tuple[tuple[Lab], dict[str, Any]]:
        return (decoding(STRATEGIES[strategy](), sequences),), {}

    def steps(lab: Lab) -> None:
        for _ in range(STEPS):
            lab.step()

    benchmark.pedantic(steps, setup=begin, rounds=ROUNDS)


@pytest.mark.parametrize("sequences", [8, 64, 256])
def bench_timeline_sample(benchmark: Any, tmp_path: Path, sequences: int) -> None:
    """A row of the timeline and a sample of the account."""
    engine = decoding(Paged(), sequences).engine
    recorder = Recorder(tmp_path / "run", 1.0, dict)
    recorder.listen(engine)

    def sample() -> None:
        engine.account.sample()
        recorder.row(0.0)

    benchmark(sample)
    recorder.close()


@pytest.mark.parametrize("name", ["chat", "rag", "streaming", "cancellations"])
def bench_requests_drawn(benchmark: Any, tmp_path: Path, name: str) -> None:
    """All requests of ten simulated minutes."""
    arguments = [f"workload={name}", "device=virtual", f"out={tmp_path / 'out'}"]
    (cell,), _ = compose_cells(arguments, ["fragbench"])
    workload = make(cell.config["workload"], "workload")
    benchmark.pedantic(lambda: deque(workload.requests(0), maxlen=0), rounds=ROUNDS)


def bench_matrix_composed(benchmark: Any, tmp_path: Path) -> None:
    """The 25 cells of the default matrix, composed and checked."""
    arguments = ["--multirun", "experiment=default_matrix", f"out={tmp_path / 'out'}"]
    benchmark.pedantic(compose_cells, args=(arguments, ["fragbench"]), rounds=3)
