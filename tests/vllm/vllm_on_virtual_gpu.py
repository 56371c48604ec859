"""An unmodified vLLM on the virtual GPU: `make test-vllm`. Each engine takes 40 s to start."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

START = "import sys; from bench.device.exec import main; sys.exit(main(sys.argv[1:]))"
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
KV_BYTES_PER_TOKEN = 2 * 4 * 1024 * 2  # K and V, layers, heads times their size, bytes
# Embedding and output; in each layer four projections of attention and three of the MLP.
WEIGHT_BYTES = 2 * (2 * 32000 * 1024 + 4 * (4 * 1024 * 1024 + 3 * 1024 * 2816))
GIB = 1 << 30
EAGER = {"enforce_eager": True}
LLAMA3_8B = LLAMA | {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 128256,
}


class Served(NamedTuple):
    """What the program printed, and its standard error with the trace of calls."""

    found: dict[str, Any]
    trace: str


def run(
    model: dict[str, Any], settings: dict[str, Any], *card: str
) -> subprocess.CompletedProcess[str]:
    """Runs serve.py on a virtual card."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(model))
        program = [sys.executable, str(Path(__file__).with_name("serve.py")), folder]
        start = [sys.executable, "-c", START, *card, "--", *program, json.dumps(settings)]
        return subprocess.run(start, capture_output=True, text=True)


def read(done: subprocess.CompletedProcess[str]) -> Served:
    assert done.returncode == 0, done.stderr[-5000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("found ")]
    return Served(json.loads(line.removeprefix("found ")), done.stderr)


def serve(engine: dict[str, Any], *more: str) -> Served:
    """Eight requests on a card of 8 GiB; `more` says more of it."""
    card = ("gpu=a100_40gb", "memory=8", "trace=true", *more)
    return read(run(LLAMA, {"requests": 8, "engine": engine}, *card))


@functools.cache
def eager(turn: int = 0) -> Served:
    """`turn` tells repeats apart."""
    return serve(EAGER)


@functools.cache
def with_graphs(*more: str) -> Served:
    """Graphs of 1, 2, 4 and 8 requests, for steps that only decode."""
    compilation = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
    return serve({"compilation_config": compilation, "max_num_seqs": 8}, *more)


def fewer_mib(served: Served, than: Served) -> float:
    """KV memory that one has less than the other."""
    blocks = than.found["blocks"] - served.found["blocks"]
    kv_bytes: int = blocks * served.found["block_tokens"] * KV_BYTES_PER_TOKEN
    return kv_bytes / (1 << 20)


def test_every_request_is_served_and_every_function_that_is_called_has_an_answer() -> None:
    served = eager()
    assert served.found["lengths"] == [32] * 8
    assert served.found["preemptions"] == 0
    assert "(not supported)" not in served.trace


def test_kv_blocks_fill_what_utilization_leaves() -> None:
    found = eager().found
    kv_bytes = found["blocks"] * found["block_tokens"] * KV_BYTES_PER_TOKEN
    left = 0.75 * 8 * GIB - WEIGHT_BYTES
    activations = 1.5 * GIB  # at most: 8,192 tokens' logits of 32,000 in FP32 are 1 GiB
    assert left - activations < kv_bytes < left
    assert kv_bytes < found["reserved_bytes"] < 8 * GIB


def test_two_runs_agree_in_every_number() -> None:
    assert eager().found == eager(turn=1).found


def test_too_few_blocks_preempt_and_every_request_is_served() -> None:
    # Each prompt takes 7 blocks of 16 tokens and each request 9 in the end; 8 need 72.
    found = serve(EAGER | {"num_gpu_blocks_override": 40}).found
    assert found["blocks"] == 40
    assert found["lengths"] == [32] * 8
    assert found["preemptions"] > 0


def test_graphs_are_captured_and_launched() -> None:
    served = with_graphs()
    assert served.found["lengths"] == [32] * 8
    # 32 tokens a request: one comes with its prompt, 31 with a graph of all eight.
    assert "graph_launch 31" in served.trace


def test_modules_come_out_of_the_kv_cache() -> None:
    # 32 kernels bring a part each, and vLLM launches one before it first reads the card's memory.
    assert fewer_mib(serve(EAGER, "modules=0.5"), than=eager()) == 512 * 31 / 32


def test_graphs_come_out_of_the_kv_cache_as_vllm_estimates_them() -> None:
    served = with_graphs("graph=10")
    assert "graphs at most 40.0 MiB" in served.trace
    # The first as sampled; three more as the second one was, which took nothing and counted as 1.
    assert fewer_mib(served, than=with_graphs()) == 10 + 3 * (10 - 1)


def test_an_allocation_that_fails_at_high_utilization_succeeds_with_expandable_segments() -> None:
    settings = {
        "requests": 48,
        "prompt_tokens": 1024,
        "output_tokens": 512,
        "engine": EAGER | {"max_model_len": 4096, "gpu_memory_utilization": 0.99},
    }
    card = ("memory=24", "context=0")
    failed = run(LLAMA3_8B, settings, *card)
    assert failed.returncode == 1
    # The MLP's gate and up projections of a step's 8,192 tokens: 2 x 14,336 wide, 2 bytes each.
    assert "OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB" in failed.stderr
    served = read(run(LLAMA3_8B, settings, *card, "alloc_conf=expandable_segments:True"))
    assert served.found["lengths"] == [512] * 48
