"""A decoder with weights: random ones, the same for a seed on every machine."""

from __future__ import annotations

import torch

from bench.errors import SettingError
from bench.model.decoder import Decoder
from bench.model.shape import ModelShape

COMPUTED_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
INITIAL_SPREAD = 0.02
"""Standard deviation of every matrix, as in GPT-2 and Llama."""


def compute_dtype(setting: str, name: str) -> torch.dtype:
    """The torch dtype of a setting. Raises SettingError for one that is not computed with."""
    if name not in COMPUTED_DTYPES:
        raise SettingError(
            f"{setting}={name} cannot be computed with here: choose one of "
            f"{', '.join(COMPUTED_DTYPES)}."
        )
    return COMPUTED_DTYPES[name]


def random_decoder(shape: ModelShape, dtype: torch.dtype, seed: int) -> Decoder:
    """A decoder on the CPU whose weights depend on the seed alone."""
    decoder = Decoder(shape, shape.layers, tensor_parallel=1)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, INITIAL_SPREAD, generator=generator)
            else:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
        if shape.tied_embeddings:
            decoder.lm_head.weight = decoder.embed_tokens.weight
        set_positions(decoder, shape)
    return decoder.to(dtype).eval()


def set_positions(decoder: Decoder, shape: ModelShape) -> None:
    """Fills the rotary tables: angles are position x theta^(-2i / head_dim) (Su et al., 2021)."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    positions = torch.arange(shape.max_model_len, dtype=torch.float64)
    angles = torch.outer(positions, shape.rope_theta**-exponents)[:, None, :]
    decoder.cos.copy_(angles.cos())
    decoder.sin.copy_(angles.sin())
