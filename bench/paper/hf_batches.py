"""The static batches that Hugging Face's caches and ours are compared on, and what is read of the
allocator after each step. Runs in the processes of hf_llama.py and hf_ours.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch

from bench.config import Config, from_container
from bench.device.stats import AllocatorReader
from bench.errors import SettingError
from bench.plugins import make


class Lengths(NamedTuple):
    """Of one request."""

    prompt_tokens: int
    output_tokens: int


class Setup(NamedTuple):
    """A job's payload, read: the experiment, and its batches of requests."""

    config: Config
    batches: list[list[Lengths]]


def read_setup(payload: Mapping[str, Any]) -> Setup:
    """`payload`: config, sizes (requests a batch), longest_output (tokens, None: as drawn) and
    padded (whether requests are as long as their batch's longest, as a tokenizer pads them).

    Raises SettingError, or WorkloadError.
    """
    config = from_container(payload["config"])
    workload = make(payload["config"]["workload"], "workload")
    requests = iter(workload.requests(config.seed))
    longest = payload["longest_output"] or config.max_model_len
    batches = []
    for size in payload["sizes"]:
        taken = islice(requests, size)
        batch = [Lengths(r.prompt_tokens, min(r.output_tokens, longest)) for r in taken]
        if len(batch) < size:
            raise SettingError(
                f"the workload ends before batches of {payload['sizes']} are full: let it last."
            )
        _check(batch, config)
        batches.append([padded(batch)] * size if payload["padded"] else batch)
    return Setup(config, batches)


def padded(batch: Sequence[Lengths]) -> Lengths:
    """What each request of a batch is padded to."""
    return Lengths(*map(max, zip(*batch, strict=True)))


def _check(batch: Sequence[Lengths], config: Config) -> None:
    tokens = sum(padded(batch))
    if tokens > config.max_model_len:
        raise SettingError(
            f"max_model_len={config.max_model_len} is less than the {tokens} tokens that a batch's "
            "longest prompt and longest output take: raise it, or bound the workload's lengths."
        )


class StepMemory:
    """The allocator after each step: [batch, allocated, reserved, peak allocated within it] in
    bytes, in `steps`."""

    def __init__(self) -> None:
        self._reader = AllocatorReader()
        self.steps: list[list[int]] = []

    def read(self, batch: int) -> None:
        """A step of the batch of this number is over."""
        now = self._reader.read()
        self.steps.append(
            [batch, now.allocated_bytes, now.reserved_bytes, now.peak_allocated_bytes]
        )
        torch.cuda.reset_peak_memory_stats()
