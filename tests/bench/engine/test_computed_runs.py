"""Runs whose model is computed: on the CPU for real; and as on a GPU, where the virtual one stands
in for it: its kernels are compiled and launched and do nothing, its memory is the real allocator's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.cells import cell_job
from bench.packaged import load_model
from tests.bench.engine.runs import Run, composed, read, run
from tests.virtual_gpu import _launcher, run_on_virtual_gpu

SMALL = (
    "model=tiny", "gpu=a100_80gb", "workload=mixed", "workload.num_requests=12",
    "workload.rate_rps=20", "max_model_len=1024", "kv_budget=256MiB", "sample_interval_s=0.05",
    "engine.max_num_seqs=16",
)  # fmt: skip
BACKENDS = ["contiguous", "bucketed", "vmm", "paged", "paged_prefix", "paged_radix"]


def run_as_on_a_gpu(out: Path, *overrides: str) -> Run:
    job = cell_job(composed(out, *SMALL, *overrides), None)
    config = job.payload["config"] | {"device": "cuda"}
    payload = job.payload | {"device": "cuda", "config": config}
    finished = _launcher().run(replace(job, payload=payload))
    assert finished.status == "ok", finished.traceback or finished.cause
    return read(out)


def check_times(done: Run) -> None:
    summary, timeline = done.summary, done.timeline
    assert summary["time"] == "measured"
    assert summary["step_s"]["measured"] > 0 < summary["step_s"]["modelled"]
    for kind in ("measured", "modelled"):
        steps_s = timeline[f"steps_{kind}_s"]
        assert steps_s.is_monotonic_increasing
        assert 0 < steps_s.iloc[0] <= steps_s.iloc[-1] <= summary["step_s"][kind]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gpu_run_computes_every_step_in_the_allocators_memory(
    backend: str, tmp_path: Path
) -> None:
    done = run_as_on_a_gpu(tmp_path / "run", f"backend={backend}")
    assert done.summary["device"] == "cuda"
    assert done.summary["requests"]["completed"] > 0
    check_times(done)
    weights = done.summary["weights_bytes"]
    assert (done.timeline["allocated_bytes"] > weights).all()


def test_a_gpu_runs_activations_are_those_that_the_virtual_gpu_replays(tmp_path: Path) -> None:
    real = run_as_on_a_gpu(tmp_path / "real", "backend=paged")
    modelled = run(tmp_path / "modelled", *SMALL, "backend=paged")
    assert modelled.summary["time"] == "modelled"
    assert modelled.timeline["steps_measured_s"].isna().all()
    ours, replayed = (each.summary["activation_peak_bytes"] for each in (real, modelled))
    assert ours == pytest.approx(replayed, abs=1 << 20)  # the allocator splits off no less


def test_a_refused_step_holds_nothing_when_it_is_tried_again_and_is_not_modelled() -> None:
    found = run_on_virtual_gpu("tests.bench.engine.computing_jobs:refuse_once", {})
    (allocated, modelled_s), again, *_ = found["tries"]
    assert again == [allocated, modelled_s]
    assert found["ended"] == ["completed", "completed"]
    assert found["preemptions"] == 1


@pytest.mark.parametrize(("kv_heads", "longest_step"), [(8, 2048), (4, 24), (1, 2048)])
def test_no_kernel_is_compiled_after_the_warm_up(kv_heads: int, longest_step: int) -> None:
    payload = {"kv_heads": kv_heads, "longest_step": longest_step}
    found = run_on_virtual_gpu("tests.bench.engine.computing_jobs:compile_all", payload)
    assert found["warm"] >= 4
    assert found["later"] == 0


def test_a_cpu_run_measures_its_steps(tmp_path: Path) -> None:
    done = run(tmp_path / "run", *SMALL, "backend=paged", "device=cpu", "weight_dtype=fp32",
               "kv_dtype=fp8")  # fmt: skip
    check_times(done)
    model = load_model("tiny")
    numbers = 2 * model.layers * model.kv_heads * model.head_dim
    assert done.summary["kv_bytes_per_token"] == numbers  # of a byte each


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["weight_dtype=int4"], "weight_dtype=int4 cannot be computed with"),
        (["kv_dtype=fp16"], "kv_dtype=fp16 cannot be computed with weight_dtype=fp32: choose"),
        (["tensor_parallel=2"], "tensor_parallel=2 cannot be computed"),
        (["backend.block_size=12"], "block_size=12 tokens cannot be read: give a power of two"),
    ],
)
def test_what_cannot_be_computed_is_said_before_anything_is_written(
    overrides: list[str], words: str, tmp_path: Path
) -> None:
    cell = composed(tmp_path / "run", *SMALL, "backend=paged", *overrides, "device=cpu")
    finished = _launcher().run(cell_job(cell, None))
    assert finished.status != "ok"
    assert words in str(finished.cause)
    assert not (tmp_path / "run").exists()
