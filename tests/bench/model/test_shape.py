"""Model shapes: published sizes, and the tensors an engine holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError

from bench.errors import SettingError
from bench.model.shape import LinearLayer, ModelShape, linear_weight_bytes
from bench.packaged import load_model, option_names

NAMES = option_names("model")
# Published with the checkpoints; OPT-13B's is Hugging Face's count of facebook/opt-13b.
PARAMETERS = {
    "llama2_7b": 6_738_415_616,
    "llama2_13b": 13_015_864_320,
    "llama3_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "opt_13b": 12_853_473_280,
    # By hand: 12,288 tokens of 256 twice; of a layer's q, k, v and output projections k and v are
    # half as wide as the others.
    "tiny": 2 * 12_288 * 256 + 4 * (3 * 256**2 + 3 * 256 * 704 + 2 * 256) + 256,
    # By hand: 50,272 tokens and 2,050 positions of d, 12 d^2 + 13 d a layer, 2 d of the last norm.
    "opt_66b": (50_272 + 2050 + 2) * 9216 + 64 * (12 * 9216**2 + 13 * 9216),
    "opt_175b": (50_272 + 2050 + 2) * 12_288 + 96 * (12 * 12_288**2 + 13 * 12_288),
}
FP16_KV_BYTES_PER_TOKEN = {
    "llama2_7b": 524_288,
    "llama2_13b": 819_200,
    "llama3_8b": 131_072,
    "llama3_70b": 327_680,
    "opt_13b": 819_200,
    "tiny": 2 * 4 * 2 * 64 * 2,
    "opt_66b": 2_359_296,
    "opt_175b": 4_718_592,
}


@pytest.mark.parametrize("name", NAMES)
def test_every_file_loads_with_its_published_sizes(name: str) -> None:
    shape = load_model(name)
    assert shape.name == name
    assert shape.parameters == PARAMETERS[name]
    assert shape.kv_bytes_per_token("fp16", 1) == FP16_KV_BYTES_PER_TOKEN[name]


def test_kv_is_halved_by_fp8_and_shared_by_gpus() -> None:
    shape = load_model("llama3_70b")
    assert shape.kv_bytes_per_token("fp8", 1) == 163_840
    assert shape.kv_bytes_per_token("bf16", 4) == 81_920


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("opt")])
def test_16_bit_weights_take_two_bytes_a_parameter(name: str) -> None:
    assert load_model(name).weight_bytes("fp16", 1) == 2 * PARAMETERS[name]


def test_32_bit_weights_take_twice_as_much() -> None:
    shape = load_model("llama3_8b")
    assert shape.weight_bytes("fp32", 1) == 2 * shape.weight_bytes("fp16", 1)


def test_a_vocabulary_is_padded_to_64_rows() -> None:
    # OPT's 50,272 rows become 50,304: 32 more rows of 5,120 elements in its one embedding.
    shape = load_model("opt_13b")
    assert shape.weight_bytes("fp16", 1) == 2 * (PARAMETERS["opt_13b"] + 32 * 5120)


def test_tensors_are_fused_as_an_engine_holds_them() -> None:
    tensors = dict(load_model("llama3_8b").weight_tensors("fp16", 1))
    assert tensors["layers.0.qkv_proj.weight"] == 2 * 4096 * (32 + 8 + 8) * 128
    assert tensors["layers.31.gate_up_proj.weight"] == 2 * 4096 * 2 * 14336
    assert tensors["lm_head"] == tensors["embed_tokens"] == 2 * 128_256 * 4096
    # 32 layers of four matrices and two norms, an embedding, the last norm and lm_head.
    assert len(tensors) == 32 * 6 + 3


def test_opt_has_biases_positions_and_one_embedding() -> None:
    tensors = dict(load_model("opt_13b").weight_tensors("fp16", 1))
    assert tensors["layers.0.up_proj.bias"] == 2 * 20480
    assert tensors["layers.0.input_norm"] == 2 * 2 * 5120
    assert tensors["embed_positions"] == 2 * (2048 + 2) * 5120
    assert "lm_head" not in tensors


def test_int4_has_a_scale_and_a_zero_for_each_group_of_128() -> None:
    matrix = LinearLayer("o_proj", inputs=256, outputs=10)
    weights, scales, zeros = 256 * 10 // 2, 2 * 10 * 2, 2 * 10 // 2
    assert linear_weight_bytes(matrix, "int4") == weights + scales + zeros


def test_quantization_leaves_embeddings_and_norms_at_16_bits() -> None:
    shape = load_model("llama3_8b")
    wide, narrow = (dict(shape.weight_tensors(dtype, 1)) for dtype in ("fp16", "fp8"))
    assert {name for name in wide if wide[name] == narrow[name]} == {
        name for name in wide if not name.endswith(".weight")
    }
    halved = [name for name in wide if 2 * narrow[name] == wide[name]]
    assert len(halved) == 32 * 4


@pytest.mark.parametrize("weight_dtype", ["fp16", "fp8", "int4"])
def test_gpus_share_linear_layers_and_vocabulary_but_not_norms(weight_dtype: str) -> None:
    shape = load_model("llama3_70b")
    whole = dict(shape.weight_tensors(weight_dtype, 1))
    for name, nbytes in shape.weight_tensors(weight_dtype, 4):
        assert nbytes == (whole[name] if name.endswith("norm") else whole[name] // 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kv_heads": 3}, "model.kv_heads=3 must divide model.heads=32"),
        ({"tensor_parallel": 3}, "tensor_parallel=3 must divide model.kv_heads=8"),
        ({"tensor_parallel": 16}, "tensor_parallel=16 must divide model.kv_heads=8"),
        ({"tensor_parallel": 0}, "tensor_parallel=0 must be at least 1"),
        ({"layers": 0}, "model.layers=0 must be at least 1"),
    ],
)
def test_contradicting_dimensions_are_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        replace(load_model("llama3_8b"), **changes)  # type: ignore[arg-type]


def test_an_unknown_dtype_is_refused_with_the_known_ones() -> None:
    shape = load_model("llama3_8b")
    with pytest.raises(SettingError, match="kv_dtype=int4 is unknown: choose one of fp32"):
        shape.kv_bytes_per_token("int4", 1)
    with pytest.raises(SettingError, match="weight_dtype=fp4 is unknown"):
        shape.weight_tensors("fp4", 1)


def test_a_misspelt_key_fails() -> None:
    with pytest.raises(ConfigKeyError, match="kv_head"):
        OmegaConf.merge(OmegaConf.structured(ModelShape), {"kv_head": 8})
