"""`fragbench exec`: unmodified PyTorch programs on a virtual GPU."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.device.exec import main
from bench.errors import SettingError

START = "import sys; from bench.device.exec import main; sys.exit(main(sys.argv[1:]))"

FORWARD = """
import torch
from torch import nn
torch.set_grad_enabled(False)
layer = nn.Sequential(nn.Linear(4096, 11008), nn.SiLU(), nn.Linear(11008, 4096)).half().cuda()
weights = torch.cuda.memory_allocated()
out = layer(torch.empty(512, 4096, dtype=torch.float16, device="cuda"))
print(torch.cuda.get_device_name(), torch.cuda.mem_get_info()[1], weights)
print(torch.cuda.memory_allocated() - weights, torch.cuda.max_memory_allocated() - weights)
print(out.sum().item())
sys_exit = 7
raise SystemExit(sys_exit)
"""

LITTLE = """
import ctypes
import torch
x = torch.empty(30 << 20, dtype=torch.uint8, device="cuda").add_(1)
for _ in range(3):
    ctypes.CDLL(None).cudaGraphInstantiate(ctypes.byref(ctypes.c_void_p()), None, 0)
"""

LLAMA = """
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
torch.set_grad_enabled(False)
config = LlamaConfig(
    hidden_size=1024, intermediate_size=2816, num_hidden_layers=4, num_attention_heads=8,
    num_key_value_heads=8, vocab_size=32000, max_position_embeddings=4096,
)
torch.set_default_dtype(torch.float16)
with torch.device("cuda"):
    model = LlamaForCausalLM(config).eval()
weights = torch.cuda.memory_allocated()
cache = DynamicCache()
tokens = torch.ones(8, 500, dtype=torch.long, device="cuda")
for step in range(200):
    logits = model(tokens, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
    tokens = logits[:, -1].argmax(-1, keepdim=True)
print(cache.get_seq_length(), torch.cuda.memory_allocated() - weights)
"""

MANAGED = """
for _ in range(5):
    print(ctypes.CDLL(None).cudaMallocManaged(None, 1, 1))
"""

CALLS = (
    """
import ctypes
import torch, triton
@triton.jit
def nothing(pointer):
    pass
held = [torch.empty(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(3)]
for _ in range(2):
    nothing[(1,)](held[0])
name = ctypes.create_string_buffer(100)
ctypes.CDLL("libnvidia-ml.so.1").nvmlDeviceGetName(None, name, 100)
"""
    + MANAGED
)


def execute(tmp_path: Path, program: str, *settings: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "program.py"
    script.write_text(program)
    return subprocess.run(
        [sys.executable, "-c", START, *settings, "--", sys.executable, str(script)],
        capture_output=True,
        text=True,
    )


def test_a_modules_forward_pass_allocates_what_it_would(tmp_path: Path) -> None:
    done = execute(tmp_path, FORWARD, "gpu=h100_80gb", "memory=24")
    assert done.returncode == 7, done.stderr
    device, sizes, total = done.stdout.splitlines()
    weight_bytes = 2 * (2 * 4096 * 11008 + 11008 + 4096)
    assert device == f"NVIDIA H100 80GB HBM3 {24 << 30} {weight_bytes}"
    held, peak = (int(size) for size in sizes.split())
    # At the end the input is gone and the output is held, besides the multiplications' workspace.
    output, hidden = 2 * 512 * 4096, 2 * 512 * 11008
    workspace = held - output
    assert 0 <= workspace < 64 << 20
    # At the peak: the input, the first layer's output and its activation.
    assert peak == output + 2 * hidden + workspace
    assert total == "0.0"


def test_a_program_is_told_that_it_runs_on_a_virtual_gpu(tmp_path: Path) -> None:
    beside = ("context=1.5", "modules=0.25", "graph=2.5")
    done = execute(tmp_path, LITTLE, "memory=10", *beside, "alloc_conf=expandable_segments:True")
    assert done.returncode == 0, done.stderr
    first, last = done.stderr.splitlines()
    assert first == (
        "fragbench: virtual NVIDIA A100-SXM4-80GB, 10.00 GiB: kernels do nothing, values read "
        "back are zeros"
    )
    # One of 32 parts of 0.25 GiB; three graphs of 2.5 MiB take whole pages of 2.
    assert last.startswith(
        "fragbench: peak device memory 40.0 MiB of 10240.0 MiB (context 1536.0 MiB, modules 8.0 "
        "MiB, graphs at most 8.0 MiB); calls: "
    )
    assert "cuMemMap 2" in last


def test_an_unmodified_llama_decodes_with_a_dynamic_cache(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    done = execute(tmp_path, LLAMA)
    assert done.returncode == 0, done.stderr
    tokens, held = (int(number) for number in done.stdout.split())
    assert tokens == 500 + 199
    kv_bytes = 8 * tokens * 4 * 2 * 1024 * 2  # batch, tokens, layers, K and V, width, fp16
    assert kv_bytes < held < kv_bytes + (64 << 20)


def test_a_trace_lists_what_was_called_and_what_is_not_supported(tmp_path: Path) -> None:
    done = execute(tmp_path, CALLS, "gpu=h100_80gb", "trace=true")
    assert done.returncode == 0, done.stderr
    listed = re.findall(r"^fragbench: +(\d+) (.+)$", done.stderr, re.MULTILINE)
    counts = {name: int(count) for count, name in listed}
    assert counts["cudaMalloc"] == 3
    assert counts["cuModuleLoadData"] == 1
    assert counts["cuLaunchKernelEx"] == 2
    assert counts["nvmlDeviceGetName"] == 1
    assert counts["cudaMallocManaged (not supported)"] == 5
    assert "cudaMallocManaged" not in counts
    assert list(counts.values()) == sorted(counts.values(), reverse=True)
    # Named at once as well, the first time.
    assert done.stderr.count("the virtual GPU does not support cudaMallocManaged") == 1
    assert done.stdout.split() == ["801"] * 5


def test_without_a_trace_nothing_is_listed(tmp_path: Path) -> None:
    done = execute(tmp_path, "import ctypes\n" + MANAGED)
    assert done.stdout.split() == ["801"] * 5
    assert "cudaMallocManaged" not in done.stderr
    assert "unsupported 5" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["gpu=a100_80gb", "python"], "put `--` between"),
        (["gpu=a100_80gb", "--"], "no command after"),
        (["gpu=b300", "--", "python"], "gpu=b300 .* a100_40gb, a100_80gb, h100_80gb"),
        (
            ["size=3", "--", "python"],
            "'size=3' .* gpu=, memory=, context=, modules=, graph=, alloc",
        ),
        (["context=none", "--", "python"], "context=none .* 0 to below 79.15"),
        (["context=80", "--", "python"], "context=80 .* own is 0.5"),
        (["modules=-1", "--", "python"], "modules=-1 .* GiB from 0 to below 79.15 .* own is 0.0"),
        (["graph=lots", "--", "python"], "graph=lots .* MiB from 0 to below 81049.6 .* own is 0.0"),
        (
            ["context=50", "modules=30", "--", "python"],
            "context_gib=50.0 and gpu.modules_gib=30.0 tog",
        ),
        (["memory=0.1", "--", "python"], "memory=0.1 .* above 0.5"),
        (["memory=2", "modules=1.5", "--", "python"], "memory=2 .* above 2 .what .* modules take"),
        (["memory=lots", "--", "python"], "memory=lots .* GiB"),
        (["trace=maybe", "--", "python"], "trace=maybe must be true or false"),
        (["--", "no_such_program"], "no program 'no_such_program'"),
    ],
)
def test_a_setting_that_cannot_be_used_is_one_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        main(arguments)


def test_help_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: fragbench exec")
