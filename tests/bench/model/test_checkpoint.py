"""A Hugging Face checkpoint gives Hugging Face's logits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bench.errors import SettingError
from bench.model.checkpoint import load_decoder
from bench.model.config_json import checkpoint_shape
from tests.bench.model.plain import causal


def saved(folder: Path, *, tied: bool) -> object:
    """A small random Llama, written as its library does; vocabulary of no whole 64 rows."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, vocab_size=101, max_position_embeddings=64,
        tie_word_embeddings=tied, rms_norm_eps=1e-6, initializer_range=0.3,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("tied", [False, True], ids=["own head", "tied head"])
def test_logits_are_those_of_the_library_that_wrote_it(tmp_path: Path, tied: bool) -> None:
    model = saved(tmp_path, tied=tied)
    shape = checkpoint_shape(str(tmp_path))
    decoder = load_decoder(shape, torch.float32)
    ids = torch.randint(101, (40,), generator=torch.Generator().manual_seed(1))
    places = torch.arange(40)
    with torch.inference_mode():
        ours = decoder.logits(ids, places, places, causal)
        theirs = model(ids[None]).logits[0]  # type: ignore[operator]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_loaded_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"has no config\.json that can be read"):
        checkpoint_shape(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["GPT2LMHeadModel"]}))
    with pytest.raises(SettingError, match="only LlamaForCausalLM can be computed"):
        checkpoint_shape(str(tmp_path))


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    saved(tmp_path, tied=False)
    shape = checkpoint_shape(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(SettingError, match=r"model.safetensors cannot be read"):
        load_decoder(shape, torch.float32)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(SettingError, match=r"has no tensor model.embed_tokens.weight"):
        load_decoder(shape, torch.float32)


def test_scaled_positions_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, tied=False)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["rope_parameters"] = {"rope_type": "llama3", "rope_theta": 500000.0}
    path.write_text(json.dumps(config))
    with pytest.raises(SettingError, match="scales its rotary positions \\(llama3\\)"):
        checkpoint_shape(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"attention_bias": True}, "attention_bias=True, and only attention_bias=False"),
        ({"mlp_bias": True}, "mlp_bias=True"),
        ({"hidden_act": "gelu"}, "hidden_act=gelu, and only hidden_act=silu"),
    ],
)
def test_what_would_be_computed_otherwise_is_refused(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    saved(tmp_path, tied=False)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(SettingError, match=words):
        checkpoint_shape(str(tmp_path))


def test_tensors_that_are_not_computed_or_have_another_shape_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, tied=False)
    shape = checkpoint_shape(str(tmp_path))
    with pytest.raises(SettingError, match=r"has tensors that are not computed \(model\.layers\.2"):
        load_decoder(replace(shape, layers=2), torch.float32)
    with pytest.raises(SettingError, match=r"up_proj.weight has shape \(160, 48\) .* \(128, 48\)"):
        load_decoder(replace(shape, intermediate_size=64), torch.float32)
