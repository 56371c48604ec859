"""Results as `vllm bench serve` writes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.exports.command import main
from bench.exports.vllm import SWEEP, _quantile, vllm_result
from bench.report.results import load_runs

WriteRun = Callable[..., Path]

SETUP = {"date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts",
         "request_rate", "burstiness", "max_concurrency"}  # fmt: skip
RESULT = {
    "duration", "completed", "failed", "total_input_tokens", "total_output_tokens",
    "request_throughput", "request_goodput", "output_throughput", "total_token_throughput",
    "input_lens", "output_lens", "ttfts", "start_times", "errors", "max_output_tokens_per_s",
    "max_concurrent_requests",
}  # fmt: skip
STATISTICS = {
    f"{statistic}_{name}_ms"
    for statistic in ("mean", "median", "std", "p99")
    for name in ("ttft", "tpot", "itl", "e2el")
}
"""What vLLM 0.20 writes (vllm/benchmarks/serve.py: `main_async`, `benchmark`), less the keys that
no run of ours has anything for: itls, generated_texts and rtfx (of audio)."""


@pytest.fixture
def result(write_run: WriteRun) -> dict[str, object]:
    arrivals = "  arrivals:\n    _target_: workloads.arrivals.poisson.PoissonArrivals\n"
    folder = write_run("run", "paged", "mixed", simulated_s=10.0)
    config = (folder / "config.yaml").read_text().replace("seed:", f"{arrivals}seed:")
    (folder / "config.yaml").write_text(config)
    found = vllm_result(load_runs(folder)[0])
    assert found is not None
    return found


def test_it_has_vllms_keys(result: dict[str, object]) -> None:
    assert set(result) >= SETUP | RESULT | STATISTICS


def test_figures_are_those_of_vllms_formulas(result: dict[str, object]) -> None:
    expected = {
        "date": "20261130-082654",
        "backend": "paged",
        "num_prompts": 4,
        "request_rate": 1.0,  # 3 gaps in 3 s
        "burstiness": 1.0,
        "completed": 3,
        "failed": 1,
        "total_input_tokens": 60,
        "total_output_tokens": 5 + 1 + 2 * 3,
        "request_throughput": 0.3,
        "output_throughput": 1.2,
        "total_token_throughput": 7.2,
        "input_lens": [10, 20, 30, 40],
        "output_lens": [5, 1, 6, 0],
        "ttfts": [1.0, 1.0, 2.0, 2.0],
        "start_times": [0.0, 1.0, 2.5, 3.0],
        "queue_times": [0.0, 0.0, 0.5, 0.0],
        "errors": ["", "", "", "failed: out of memory"],
        "max_concurrent_requests": 2,  # the second ended as the third was sent
        "median_ttft_ms": 1000.0,
        "mean_tpot_ms": 500.0,
        "std_tpot_ms": 0.0,
        "mean_e2el_ms": 2500.0,
        "median_itl_ms": 15.0,  # of 5 gaps of 10 ms, 4 of 20 and one of 40
        "mean_itl_ms": 17.0,
    }
    for key, value in expected.items():
        exact = isinstance(value, str | list)
        assert result[key] == (value if exact else pytest.approx(value)), key


def test_what_is_undefined_is_null_and_not_zero(
    result: dict[str, object], write_run: WriteRun
) -> None:
    assert result["p99_ttft_ms"] is None  # of three samples
    assert result["request_goodput"] is None
    killed = vllm_result(load_runs(write_run("killed", omit_summary=True))[0])
    assert killed is not None
    assert killed["duration"] is killed["request_throughput"] is None
    assert killed["completed"] == 3


def test_a_file_a_run_and_one_of_all_that_no_report_takes_for_a_run(
    write_run: WriteRun, tmp_path: Path
) -> None:
    for folder in ("a/b", "a-b"):
        write_run(folder)
    assert main([str(tmp_path), "to=vllm"]) == 0
    place = tmp_path / "exports" / "vllm"
    assert sorted(path.name for path in place.glob("*.json")) == ["a-b-2.json", "a-b.json"]
    listed = json.loads((place / SWEEP).read_text())
    assert {each["folder"] for each in listed} == {"a/b", "a-b"}
    assert "ttfts" not in listed[0]
    assert len(load_runs(tmp_path)) == 2


@given(
    st.dictionaries(st.floats(0, 100), st.integers(1, 30), min_size=1, max_size=20),
    st.sampled_from([50, 90, 95, 99]),
)
def test_percentiles_of_counted_values_are_numpys(counted: dict[float, int], percent: int) -> None:
    sizes = np.array(sorted(counted))
    counts = np.array([counted[size] for size in sizes], dtype=float)
    each = np.repeat(sizes, counts.astype(int))
    expected = np.percentile(each, percent)
    assert _quantile(sizes, counts, percent) == pytest.approx(expected, abs=1e-9)
