"""Weights of Llama checkpoints of Hugging Face's layout, from the safetensors of a local folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bench.errors import SettingError
from bench.model.decoder import Decoder
from bench.model.shape import ModelShape
from bench.model.weights import empty_decoder

NEEDLESS = ("lm_head.weight", "rotary_emb.inv_freq")
"""Also in some files: where it is tied to the embedding, and computed from config.json."""


def load_decoder(shape: ModelShape, dtype: torch.dtype, device: str = "cpu") -> Decoder:
    """The checkpoint of `shape`. Raises SettingError."""
    assert shape.checkpoint is not None
    folder = Path(shape.checkpoint).expanduser()
    tensors, taken = dict(_tensors(folder)), set[str]()
    decoder = empty_decoder(shape, dtype, device)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            names = _names(name, shape)
            taken.update(names)
            parts = [_take(tensors, part, folder) for part in names]
            whole = torch.cat(parts)
            _check_shape(folder, name, whole, parameter, shape.vocab_size)
            # The vocabulary's rows are padded here; nobody looks at those beyond it.
            parameter.zero_()[: len(whole)].copy_(whole)
    unused = sorted(name for name in tensors.keys() - taken if not name.endswith(NEEDLESS))
    if unused:
        raise SettingError(
            f"model.checkpoint={folder} has tensors that are not computed ({unused[0]} and "
            f"{len(unused) - 1} more): give a checkpoint of a plain Llama."
        )
    return decoder


def _check_shape(folder: Path, name: str, found: Tensor, wanted: Tensor, vocab_size: int) -> None:
    """Rows of the vocabulary may be fewer than ours, which are padded."""
    rows = vocab_size if name.startswith(("embed_tokens", "lm_head")) else len(wanted)
    if tuple(found.shape) != (rows, *wanted.shape[1:]):
        raise SettingError(
            f"model.checkpoint={folder}: {name} has shape {tuple(found.shape)} in its files and "
            f"{(rows, *wanted.shape[1:])} by its config.json: fetch both again."
        )


def _tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - no mapping
                    yield name, file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise SettingError(f"{path} cannot be read: {error}; fetch it again.") from error


def _take(tensors: dict[str, Tensor], name: str, folder: Path) -> Tensor:
    if name not in tensors:
        raise SettingError(
            f"model.checkpoint={folder} has no tensor {name} in its *.safetensors: fetch all its "
            "files."
        )
    return tensors[name]


def _names(ours: str, shape: ModelShape) -> list[str]:
    """The checkpoint's tensors that make one of ours, in order."""
    if ours == "lm_head.weight":
        return ["model.embed_tokens.weight" if shape.tied_embeddings else ours]
    for part, theirs in _PARTS.items():
        if part in ours:
            return [f"model.{ours.replace(part, each)}" for each in theirs]
    return [f"model.{ours}"]


_PARTS = {
    "attention.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention.o_proj": ("self_attn.o_proj",),
    "feed_forward.up_proj": ("mlp.gate_proj", "mlp.up_proj"),
    "feed_forward.down_proj": ("mlp.down_proj",),
    "input_norm": ("input_layernorm",),
    "post_attention_norm": ("post_attention_layernorm",),
}
