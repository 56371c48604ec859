"""The config.json that vLLM reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.model.config_json import checkpoint_shape
from bench.packaged import load_model
from bench.vllm.model_config import model_config


@pytest.mark.parametrize("name", ["llama3_8b", "llama2_13b"])
def test_a_llama_is_the_shape_that_it_was(name: str, tmp_path: Path) -> None:
    shape = load_model(name)
    (tmp_path / "config.json").write_text(json.dumps(model_config(shape)))
    found = checkpoint_shape(str(tmp_path))
    assert vars(found) | {"name": name, "checkpoint": None, "tensor_parallel": 1} == vars(shape)


def test_learned_positions_are_opts() -> None:
    config = model_config(load_model("opt_13b"))
    assert config["architectures"] == ["OPTForCausalLM"]
    assert config["ffn_dim"] == 4 * config["hidden_size"] == 20480
