"""engine=vllm beside engine=inrepo: the same traffic, blocks and clock; `make test-vllm`."""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from vllm import EngineArgs

from bench.vllm.settings import FIXED_ARGUMENTS, OWN_ARGUMENTS

# A small Llama whose 128 MiB of K and V, 2,048 tokens, do not hold all that comes.
SMALL = (
    "device=virtual", "model=llama2_7b", "model.layers=4", "gpu=a100_40gb", "max_model_len=1024",
    "vllm.mode=eager", "sample_interval_s=0.05",
)  # fmt: skip
# vLLM's activations make other driver calls than the model's recorded ones: they cost nothing here.
FREE_CALLS = tuple(
    f"costs.{name}_us=0"
    for name in ("synchronization", "cuda_malloc", "cuda_free", "cu_mem_address_reserve",
                 "cu_mem_address_free", "cu_mem_create", "cu_mem_release", "cu_mem_map",
                 "cu_mem_unmap", "cu_mem_set_access")
)  # fmt: skip
TRAFFIC = (
    *FREE_CALLS, "kv_budget=128MiB", "workload=chat", "workload/clients=leaving",
    "workload.rate_rps=40", "workload.num_requests=40",
)  # fmt: skip
OTHER = ("backend.block_size=32", "backend.watermark=0.05", "engine.token_budget=256",
         "engine.max_num_seqs=12")  # fmt: skip
PAIRS = (
    ("backend=paged,engine=inrepo", "backend=vllm,engine=vllm"),
    ("backend=paged_prefix,engine=inrepo", "backend=vllm_prefix,engine=vllm"),
)
ALIKE = ("blocks_used", "blocks_free", "blocks_cached", "running", "waiting", "live_tokens",
         "shared_bytes", "preemptions", "completed", "step_tokens", "memory_bound")  # fmt: skip


def fragbench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments], capture_output=True, text=True
    )


def run(*overrides: str) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One run's folder, and how the command ended."""
    out = Path(tempfile.mkdtemp(prefix="fragbench-")) / "run"
    return out, fragbench("run", *SMALL, "engine=vllm", *overrides, f"out={out}")


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return found


@functools.cache
def matrix(*more: str) -> Path:
    """The same traffic through both engines, with and without prefix caching."""
    out = Path(tempfile.mkdtemp(prefix="fragbench-")) / "matrix"
    both = ("backend=paged,paged_prefix", "engine=inrepo,vllm")
    done = fragbench("matrix", *SMALL, *TRAFFIC, *both, *more, f"out={out}")
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def alike(ours: str, theirs: str, *more: str) -> pd.DataFrame:
    """What both timelines are in, which must be the same."""
    tables = [pd.read_parquet(matrix(*more) / each / "timeline") for each in (ours, theirs)]
    first, second = (table[list(ALIKE)] for table in tables)
    pd.testing.assert_frame_equal(first, second)
    return first


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_our_blocks_are_vllms_at_every_sample(ours: str, theirs: str) -> None:
    timeline = alike(ours, theirs)
    assert timeline.preemptions.iloc[-1] > 0
    assert timeline.memory_bound.any()


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_with_other_limits_too(ours: str, theirs: str) -> None:
    assert alike(ours, theirs, *OTHER).memory_bound.any()


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_every_request_fares_alike(ours: str, theirs: str) -> None:
    tables = [
        pd.read_parquet(matrix() / each / "requests").set_index("request_id").sort_index()
        for each in (ours, theirs)
    ]
    exact = ["status", "generated_tokens", "preemptions", "cached_tokens", "left"]
    pd.testing.assert_frame_equal(tables[0][exact], tables[1][exact])
    assert {"completed", "cancelled"} <= set(tables[0].status)
    times = ["admitted_s", "first_token_s", "last_token_s", "end_s"]
    pd.testing.assert_frame_equal(tables[0][times], tables[1][times], rtol=0, atol=1e-9)


@pytest.mark.parametrize("theirs", [theirs for _, theirs in PAIRS])
def test_what_vllm_counted_itself_is_what_was_followed(theirs: str) -> None:
    found = summary(matrix() / theirs)
    counted, cache = found["vllm_counted"], found["prefix_cache"]
    assert counted["num_preemptions"] == found["preemptions"]
    if cache is None:
        assert (counted["prefix_cache_queries"], counted["prefix_cache_hits"]) == (0, 0)
    else:
        assert counted["prefix_cache_queries"] == cache["query_tokens"]
        assert counted["prefix_cache_hits"] == cache["hit_tokens"] > 0


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_refusals_are_the_same_incidents(ours: str, theirs: str) -> None:
    def read(name: str) -> list[dict[str, Any]]:
        lines = (matrix() / name / "incidents.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    keys = ("kind", "layer", "request_id", "wanted_bytes", "active_sequences", "live_tokens",
            "token_states_bytes", "free_bytes", "cached_bytes")  # fmt: skip
    first, second = ([{key: i.get(key) for key in keys} for i in read(n)] for n in (ours, theirs))
    assert first == second
    assert {incident["kind"] for incident in first} == {"reserve_refused", "extend_refused"}


def test_graphs_have_a_pool_and_eager_has_none() -> None:
    few = ("workload=chat", "workload.num_requests=3", "engine.max_num_seqs=8")
    pools, peaks = [], []
    for mode in ("eager", "graphs"):
        out, done = run(*few, f"vllm.mode={mode}")
        assert done.returncode == 0, done.stdout + done.stderr
        found = summary(out)
        assert found["requests"]["completed"] == 3
        pools.append(found["vllm"]["graph_pool_bytes"])
        peaks.append(found["activation_peak_bytes"])
    assert pools[0] == 0 < pools[1]
    assert peaks[1] - peaks[0] < found["vllm"]["graphs_estimate_bytes"], "which is no activation"


def test_a_budget_is_taken_once_though_graphs_are_profiled_over_a_cache_as_well() -> None:
    # Something of 1.4 MiB would stay in the segment of that first cache, and 9 GiB with it.
    long = ("model=llama3_8b", "model.max_model_len=32768", "max_model_len=32768")
    few = ("workload=chat", "workload.num_requests=3", "vllm.mode=graphs")
    out, done = run(*long, "kv_budget=9GiB", *few)
    assert done.returncode == 0, done.stdout + done.stderr
    found = summary(out)
    reserved = found["vllm"]["card"]["started"]["reserved_bytes"]
    assert 0 < reserved - found["weights_bytes"] - (9 << 30) < 1 << 30


def test_a_model_with_learned_positions_runs() -> None:
    out, done = run("model=opt_13b", "model.layers=4", "workload=chat", "workload.num_requests=3")
    assert done.returncode == 0, done.stdout + done.stderr
    found = summary(out)
    # Of a layer 4 x 5,120^2 of attention and 8 x 5,120^2 of the MLP, with biases and norms; the
    # embedding, tied, of 50,272 rows.
    assert found["weights_bytes"] == pytest.approx(2 * (4 * 12 + 50272 / 5120) * 5120**2, rel=0.02)
    assert found["requests"]["completed"] == 3


def test_an_argument_that_vllm_does_not_have_is_one_sentence() -> None:
    out, done = run("workload=chat", "workload.num_requests=3", "+vllm.arguments.fast=true")
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()[-1:]
    assert "engine=vllm cannot start" in line
    assert "fast" in line
    assert not out.exists()


@pytest.mark.parametrize(
    ("budget", "why"), [("60GiB", "does not fit"), ("64MiB", "needs 65 with the null block")]
)
def test_a_budget_that_cannot_be_is_one_sentence(budget: str, why: str) -> None:
    out, done = run("workload=chat", "workload.num_requests=3", f"kv_budget={budget}")
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()[-1:]
    assert why in line
    assert not out.exists()


def test_arguments_that_are_spoken_for_are_vllms() -> None:
    known = {field.name for field in dataclasses.fields(EngineArgs)}
    assert {*OWN_ARGUMENTS, *FIXED_ARGUMENTS} <= known


def test_a_step_that_runs_out_of_memory_ends_the_run_and_expandable_segments_avoid_it() -> None:
    """As in vllm_on_virtual_gpu.py: the MLP of 8,192 tokens wants 2 x 14,336 x 2 bytes of each."""
    tight = (
        "model=llama3_8b", "model.layers=32", "gpu.memory_gib=24", "gpu.context_gib=0",
        "utilization=0.99", "max_model_len=4096", "engine.token_budget=8192", "workload=batch",
        "workload.num_requests=48", "workload.rate_rps=1000",
        "workload.kinds.batch.output.tokens=512",
    )  # fmt: skip
    out, done = run(*tight)
    found = summary(out)
    assert (done.returncode, found["status"]) == (1, "failed")
    assert "vLLM ran out of memory" in found["cause"]
    last = json.loads((out / "incidents.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert (last["kind"], last["ended_run"]) == ("activation_refused", True)
    assert last["tried_bytes"] == 448 << 20
    out, done = run(*tight, "alloc_conf=expandable_segments:True")
    assert done.returncode == 0, done.stdout + done.stderr
    assert summary(out)["requests"]["completed"] == 48
