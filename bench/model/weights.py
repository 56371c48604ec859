"""A decoder with weights: random ones, the same for a seed on every machine of a kind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from bench.errors import SettingError
from bench.model.decoder import Decoder
from bench.model.shape import ModelShape

COMPUTED_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
STORED_DTYPES = COMPUTED_DTYPES | {"fp8": torch.float8_e4m3fn}
INITIAL_SPREAD = 0.02
"""Standard deviation of every matrix, as in GPT-2 and Llama."""


def compute_dtypes(weight_dtype: str, kv_dtype: str) -> tuple[torch.dtype, torch.dtype]:
    """What weights and activations are computed in, and what K and V are stored in.

    Raises SettingError for weights that are not computed with, and for K and V that are neither of
    the same kind nor fp8, which is what attention kernels read.
    """
    if weight_dtype not in COMPUTED_DTYPES:
        raise SettingError(
            f"weight_dtype={weight_dtype} cannot be computed with here: choose one of "
            f"{', '.join(COMPUTED_DTYPES)}, or device=virtual."
        )
    if kv_dtype not in (weight_dtype, "fp8"):
        raise SettingError(
            f"kv_dtype={kv_dtype} cannot be computed with weight_dtype={weight_dtype}: choose "
            f"kv_dtype={weight_dtype} or kv_dtype=fp8."
        )
    return COMPUTED_DTYPES[weight_dtype], STORED_DTYPES[kv_dtype]


def random_decoder(
    shape: ModelShape, dtype: torch.dtype, seed: int, device: str = "cpu"
) -> Decoder:
    """A decoder whose weights depend on the seed and the kind of device alone."""
    generator = torch.Generator(device).manual_seed(seed)
    decoder = empty_decoder(shape, dtype, device)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, INITIAL_SPREAD, generator=generator)
            else:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
    return decoder


def empty_decoder(shape: ModelShape, dtype: torch.dtype, device: str) -> Decoder:
    """A decoder whose weights are still to be set: all else is there."""
    with torch.device(device), default_dtype(dtype):
        decoder = Decoder(shape, shape.layers, tensor_parallel=1)
    if shape.tied_embeddings:
        decoder.lm_head.weight = decoder.embed_tokens.weight
    _set_positions(decoder, shape)
    return decoder.eval()


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """What tensors are made of that say nothing else."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _set_positions(decoder: Decoder, shape: ModelShape) -> None:
    """Fills the rotary tables: angles are position x theta^(-2i / head_dim) (Su et al., 2021)."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    positions = torch.arange(shape.max_model_len, dtype=torch.float64)
    angles = torch.outer(positions, shape.rope_theta**-exponents)[:, None, :]
    decoder.cos.copy_(angles.cos())
    decoder.sin.copy_(angles.sin())
