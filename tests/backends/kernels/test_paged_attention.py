"""Store, then attend, as a model's layer does; and what importing it brings along."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from backends.kernels import paged_attention
from backends.kernels.base import KvCache, PagedBatch

BLOCK_SIZE, HEADS, KV_HEADS, HEAD_DIM = 16, 4, 2, 16
ROOT = Path(__file__).parents[3]


def test_tokens_fed_in_chunks_and_one_by_one_attend_as_in_one_pass() -> None:
    """Prompts of 15 and 17 tokens in chunks of at most 9, then three decode steps."""
    generator = torch.Generator().manual_seed(0)
    lengths = (18, 20)
    q, k, v = (
        [torch.randn(n, heads, HEAD_DIM, generator=generator) for n in lengths]
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    part = torch.full((5, BLOCK_SIZE, KV_HEADS, HEAD_DIM), float("nan"))
    cache = KvCache(part, part.clone())
    tables, done, outputs = [[4, 1], [2, 3]], [0, 0], [[], []]  # type: ignore[var-annotated]
    for news in ((9, 9), (6, 8), (1, 1), (1, 1), (1, 1)):
        contexts = [old + new for old, new in zip(done, news, strict=True)]
        batch = PagedBatch.of(tables, contexts, news, BLOCK_SIZE)
        step = [
            torch.cat([x[old:end] for x, old, end in zip(each, done, contexts, strict=True)])
            for each in (q, k, v)
        ]
        paged_attention.store_kv(step[1], step[2], cache, batch)
        out = paged_attention.attend(step[0], cache, batch, HEAD_DIM**-0.5)
        for kept, rows in zip(outputs, out.split(news), strict=True):
            kept.append(rows)
        done = contexts
    for i, kept in enumerate(outputs):
        whole = torch.nn.functional.scaled_dot_product_attention(
            q[i].transpose(0, 1), k[i].transpose(0, 1), v[i].transpose(0, 1),
            is_causal=True, enable_gqa=True,
        )  # fmt: skip
        torch.testing.assert_close(torch.cat(kept), whole.transpose(0, 1), rtol=1e-5, atol=1e-6)


def test_importing_it_neither_imports_triton_nor_starts_threads() -> None:
    """The fork server forks after imports."""
    code = (
        "import json, os, sys, torch\n"
        "threads = len(os.listdir('/proc/self/task'))\n"
        "import backends.kernels.paged_attention\n"
        "triton = any(name.partition('.')[0] == 'triton' for name in sys.modules)\n"
        "print(json.dumps([triton, len(os.listdir('/proc/self/task')) - threads]))"
    )
    command = [sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert json.loads(done.stdout) == [False, 0]
