"""What the tests of both prefix caches use: prompts, pools of so many blocks, public traces."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from backends.base import KvLayout, TokenIds

BLOCK_BYTES = 2 << 20  # a layer's part of the budget is cut to whole 2 MiB segments


def ids(*runs: tuple[int, int]) -> TokenIds:
    """A prompt of (token, how often) runs, and then tokens of nobody else's."""
    nobody = next(_nobody)
    return source([token for token, times in runs for _ in range(times)] + [nobody] * 1000)


def source(tokens: list[int]) -> TokenIds:
    return lambda start, stop: b"".join(t.to_bytes(4, "little") for t in tokens[start:stop])


_nobody = itertools.count(1_000_000)


def layout(blocks: int, block_size: int) -> KvLayout:
    """Of a pool of exactly so many blocks, the null block among them."""
    token_bytes = BLOCK_BYTES // block_size
    return KvLayout(1, token_bytes, block_size, blocks * BLOCK_BYTES, device="cpu")


def traces() -> Path:
    """The folder of public traces; the test is skipped where there is none."""
    folder = os.environ.get("FRAGBENCH_TRACES")
    if folder is None:
        pytest.skip("FRAGBENCH_TRACES is not set: no public traces here")
    return Path(folder)
