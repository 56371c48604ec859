"""Measured operator times of Vidur (Agrawal et al., MLSys 2024), as the fit and its tests read
them: one decoder layer in fp16, a median for each number of tokens and tensor-parallel degree."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from bench.errors import SettingError
from bench.model.shape import ModelShape

Floats = npt.NDArray[np.float64]
LINEAR_OPERATORS = {
    "attn_pre_proj": "qkv_proj",
    "attn_post_proj": "o_proj",
    "mlp_up_proj": "gate_up_proj",
    "mlp_down_proj": "down_proj",
}
ELEMENTWISE_OPERATORS = {
    "input_layernorm": "input_norm",
    "attn_rope": "rope",
    "post_attention_layernorm": "post_attention_norm",
    "mlp_act": "act",
    "add": "add",
}
GPU_OF_PREFIX = {"a100": "a100_80gb", "h100": "h100_80gb"}


class Profile(NamedTuple):
    """One model's layer on one GPU at one tensor-parallel degree; times by `CostModel` names."""

    name: str
    gpu: str
    shape: ModelShape
    tensor_parallel: int
    tokens: npt.NDArray[np.int64]
    seconds: dict[str, Floats]


def read_profiles(folder: Path) -> list[Profile]:
    """Every profile in `folder` (<gpu>_<model>_linear.csv), one for each tensor-parallel degree.

    Raises SettingError if there is none, or one of an unknown GPU.
    """
    paths = sorted(folder.glob("*_linear.csv"))
    if not paths:
        raise SettingError(f"no profile <gpu>_<model>_linear.csv in {folder}: check the folder.")
    return [profile for path in paths for profile in _read_file(path)]


def _read_file(path: Path) -> list[Profile]:
    name = path.name.removesuffix("_linear.csv")
    prefix = name.split("_")[0]
    if prefix not in GPU_OF_PREFIX:
        raise SettingError(
            f"{path.name} is of an unknown GPU: its name must begin with one of "
            f"{', '.join(GPU_OF_PREFIX)}."
        )
    rows = pd.read_csv(path).sort_values("num_tokens")
    degrees = rows["num_tensor_parallel_workers"]
    shape = _shape(name, rows)
    return [
        _profile(name, GPU_OF_PREFIX[prefix], shape, int(degree), rows[degrees == degree])
        for degree in sorted(degrees.unique())
    ]


def _shape(name: str, rows: pd.DataFrame) -> ModelShape:
    hidden, feed_forward, heads, kv_heads, vocab = (
        int(rows[column].iloc[0])
        for column in ("n_embd", "n_expanded_embd", "n_head", "n_kv_head", "vocab_size")
    )
    return ModelShape(
        name=name,
        layers=1,
        hidden_size=hidden,
        intermediate_size=feed_forward,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=hidden // heads,
        vocab_size=vocab,
        max_model_len=int(rows["num_tokens"].max()),
    )


def _profile(
    name: str, gpu: str, shape: ModelShape, tensor_parallel: int, rows: pd.DataFrame
) -> Profile:
    operators = LINEAR_OPERATORS | ELEMENTWISE_OPERATORS
    seconds = {
        operator: rows[f"time_stats.{column}.median"].to_numpy(dtype=np.float64) * 1e-3
        for column, operator in operators.items()
    }
    tokens = rows["num_tokens"].to_numpy(dtype=np.int64)
    return Profile(name, gpu, shape, tensor_parallel, tokens, seconds)
