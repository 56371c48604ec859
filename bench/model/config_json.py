"""The shape of a Llama checkpoint of Hugging Face's layout, from its config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.errors import SettingError
from bench.model.shape import ModelShape

ARCHITECTURE = "LlamaForCausalLM"
_SETTING = "model.checkpoint"
COMPUTED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
}
"""What the decoder does, by config.json's keys; the first value is also the default."""


def checkpoint_shape(folder: str) -> ModelShape:
    """The shape that a checkpoint's config.json gives. Raises SettingError."""
    config = _read_config(Path(folder).expanduser())
    _check_computed(folder, config)
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


def _check_computed(folder: str, config: dict[str, Any]) -> None:
    """Raises SettingError for what the decoder does in another way."""
    for name, computed in COMPUTED.items():
        found = config.get(name, computed[0])
        if found not in computed:
            raise SettingError(
                f"{_SETTING}={folder} has {name}={found}, and only {name}={computed[0]} is "
                "computed: give another Llama checkpoint."
            )


def _rope_theta(folder: str, config: dict[str, Any]) -> float:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind != "default":
        raise SettingError(
            f"{_SETTING}={folder} scales its rotary positions ({kind}), which is not computed: "
            "give a checkpoint without rope_scaling."
        )
    return float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0)
