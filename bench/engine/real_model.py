"""The model that a run computes: made, its largest step, and everything done once before."""

from __future__ import annotations

from itertools import pairwise

import torch

from backends.base import Backend, Demand, DeviceName, NewTokens
from bench.config import Config
from bench.engine.activations import allocate_attention
from bench.engine.text import Text
from bench.errors import SettingError
from bench.model.checkpoint import load_decoder
from bench.model.decoder import Attend, Decoder
from bench.model.weights import random_decoder

WARM_UP = -1
"""A sequence that no request is."""

WARM_UP_PROMPTS = (1, 2, 4, 8, 16, 32, 64, 600)
"""Tokens, at most: between them they take every kernel. Those of prefill have from 16 to 64 rows, a
power of two; decodes of more than 512 tokens are split (backends/kernels)."""


def make_decoder(config: Config, dtype: torch.dtype, device: DeviceName) -> Decoder:
    """The checkpoint if there is one, else random weights. The device also keeps the workspace of
    its matrix library from now on. Raises SettingError."""
    if config.tensor_parallel > 1:
        raise SettingError(
            f"tensor_parallel={config.tensor_parallel} cannot be computed, one device is used: "
            "set tensor_parallel=1, or model it with device=virtual."
        )
    try:
        decoder = (
            load_decoder(config.model, dtype, device)
            if config.model.checkpoint
            else random_decoder(config.model, dtype, config.seed, device)
        )
        run_without_memory(decoder, device, tokens=1, rows=1)
    except torch.OutOfMemoryError as error:
        raise SettingError(
            f"model={config.model.name} does not fit gpu={config.gpu.name}: choose a smaller model "
            "or weight_dtype, or stop what else is on the card."
        ) from error
    return decoder


def run_without_memory(decoder: Decoder, device: DeviceName, tokens: int, rows: int) -> None:
    """Takes the activations of a step of so many tokens and sampled rows; no KV memory."""
    run(decoder, device, tokens, rows, allocate_attention)


@torch.inference_mode()
def run(decoder: Decoder, device: DeviceName, tokens: int, rows: int, attend: Attend) -> None:
    """Computes tokens whose ids do not matter, and waits until it is done."""
    zeros = torch.zeros(tokens, dtype=torch.int64, device=device)
    decoder.logits(zeros, zeros, zeros[:rows], attend).argmax(dim=-1).tolist()


def warm_up(
    decoder: Decoder,
    backend: Backend,
    device: DeviceName,
    max_model_len: int,
    longest_step: int,
) -> None:
    """Has kernels compiled and libraries loaded, so that no measured step waits for that: a
    prefill, in steps of at most `longest_step` tokens, and a decode, of several lengths. Memory is
    as before. Raises SettingError."""
    prompts = {min(tokens, max_model_len - 1) for tokens in WARM_UP_PROMPTS}
    try:
        for tokens in sorted(prompts - {0}):
            _warm_up_with(decoder, backend, device, tokens, longest_step)
    except torch.OutOfMemoryError as error:
        raise SettingError(
            "the first steps do not fit beside weights and KV memory: lower utilization."
        ) from error
    if device == "cuda":
        torch.cuda.empty_cache()


def _warm_up_with(
    decoder: Decoder, backend: Backend, device: DeviceName, tokens: int, longest_step: int
) -> None:
    demand = Demand(tokens, output_tokens=2, token_ids=Text([0] * (tokens + 1)))
    if backend.reserve(WARM_UP, tokens, tokens, demand) is None:
        return
    stops = [*range(longest_step, tokens, longest_step), tokens]
    for start, stop in pairwise([0, *stops]):
        attend = backend.attention([NewTokens(WARM_UP, 0, start, stop)])
        run(decoder, device, stop - start, 1, attend)
    backend.computed()
    if backend.extend(WARM_UP, tokens + 1) is not None:
        attend = backend.attention([NewTokens(WARM_UP, 0, tokens, tokens + 1)])
        run(decoder, device, 1, 1, attend)
        backend.computed()
    backend.free(WARM_UP)
