"""Llama checkpoints of Hugging Face's layout, from a local folder: config.json and safetensors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bench.errors import SettingError
from bench.model.decoder import Decoder
from bench.model.shape import ModelShape
from bench.model.weights import set_positions

ARCHITECTURE = "LlamaForCausalLM"
_SETTING = "model.checkpoint"


def checkpoint_shape(folder: str) -> ModelShape:
    """The shape that a checkpoint's config.json gives. Raises SettingError."""
    config = _read_config(Path(folder).expanduser())
    heads = config["num_attention_heads"]
    return ModelShape(
        name=Path(folder).name,
        layers=config["num_hidden_layers"],
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        vocab_size=config["vocab_size"],
        max_model_len=config["max_position_embeddings"],
        tied_embeddings=bool(config.get("tie_word_embeddings")),
        rope_theta=_rope_theta(folder, config),
        norm_epsilon=config["rms_norm_eps"],
        checkpoint=folder,
    )


def load_decoder(shape: ModelShape, dtype: torch.dtype) -> Decoder:
    """The checkpoint of `shape` on the CPU. Raises SettingError."""
    assert shape.checkpoint is not None
    folder = Path(shape.checkpoint).expanduser()
    tensors = dict(_tensors(folder))
    decoder = Decoder(shape, shape.layers, tensor_parallel=1)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            parts = [_take(tensors, part, folder) for part in _names(name, shape)]
            whole = torch.cat(parts)
            # The vocabulary's rows are padded here; nobody looks at those beyond it.
            parameter.zero_()[: len(whole)].copy_(whole)
        set_positions(decoder, shape)
    return decoder.to(dtype).eval()


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingError(
            f"{_SETTING}={folder} has no config.json that can be read ({error}): give the folder "
            "of a checkpoint as Hugging Face's save_pretrained writes it."
        ) from error
    if ARCHITECTURE not in config.get("architectures", []):
        raise SettingError(
            f"{_SETTING}={folder} is of {config.get('architectures')} and only {ARCHITECTURE} can "
            "be computed: give a Llama checkpoint."
        )
    return dict(config)


def _rope_theta(folder: str, config: dict[str, Any]) -> float:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind != "default":
        raise SettingError(
            f"{_SETTING}={folder} scales its rotary positions ({kind}), which is not computed: "
            "give a checkpoint without rope_scaling."
        )
    return float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0)


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
            f"{_SETTING}={folder} has no tensor {name} in its *.safetensors: fetch all its files."
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
