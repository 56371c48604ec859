"""What fragbench knows of a model: the schema of `conf/model/`, and the sizes that follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from bench.errors import SettingError

BYTES_PER_ELEMENT = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int4": 0.5}
KV_DTYPES = ("fp32", "fp16", "bf16", "fp8")
WEIGHT_DTYPES = ("fp32", "fp16", "bf16", "fp8", "int4")
ACTIVATION_BYTES = 2
INT4_GROUP = 128
VOCAB_PADDING = 64
OPT_POSITION_OFFSET = 2


class LinearLayer(NamedTuple):
    """A weight matrix on one GPU, of `inputs` x `outputs` elements."""

    name: str
    inputs: int
    outputs: int


class WeightTensor(NamedTuple):
    """A tensor that an engine keeps for the whole run, on one GPU."""

    name: str
    nbytes: int


@dataclass
class ModelShape:
    """The dimensions of a decoder-only transformer (sources in each file of `conf/model/`).

    `gated_mlp` models (Llama) have gate, up and down projections, others (OPT) up and down;
    `learned_positions` replace rotary ones, whose base is `rope_theta`; `biases` are those of
    linear layers and norms; `norm_epsilon` is RMSNorm's; `checkpoint` is a folder with weights,
    which are random without one.

    Raises SettingError if the dimensions contradict each other.
    """

    name: str
    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    max_model_len: int
    gated_mlp: bool = True
    tied_embeddings: bool = False
    learned_positions: bool = False
    biases: bool = False
    tensor_parallel: int = 1
    rope_theta: float = 10_000.0
    norm_epsilon: float = 1e-5
    checkpoint: str | None = None

    def __post_init__(self) -> None:
        for field in ("layers", "hidden_size", "intermediate_size", "heads", "kv_heads",
                      "head_dim", "vocab_size", "max_model_len"):  # fmt: skip
            if getattr(self, field) < 1:
                raise SettingError(
                    f"model.{field}={getattr(self, field)} must be at least 1: take it from the "
                    "model's config.json."
                )
        if self.heads % self.kv_heads:
            raise SettingError(
                f"model.kv_heads={self.kv_heads} must divide model.heads={self.heads}: each KV "
                "head serves a whole number of query heads."
            )
        if self.head_dim % 2 and not self.learned_positions:
            raise SettingError(
                f"model.head_dim={self.head_dim} must be even: rotary positions turn pairs."
            )
        self.check_tensor_parallel(self.tensor_parallel)

    def check_tensor_parallel(self, tensor_parallel: int) -> None:
        """Raise SettingError unless `tensor_parallel` GPUs can share this model evenly."""
        if tensor_parallel < 1:
            raise SettingError(
                f"tensor_parallel={tensor_parallel} must be at least 1: it is the number of GPUs "
                "that share the model."
            )
        for field in ("kv_heads", "intermediate_size"):
            if getattr(self, field) % tensor_parallel:
                raise SettingError(
                    f"tensor_parallel={tensor_parallel} must divide model.{field}="
                    f"{getattr(self, field)} of {self.name}: choose a divisor of both "
                    f"kv_heads={self.kv_heads} and intermediate_size={self.intermediate_size}."
                )

    def kv_bytes_per_token(self, kv_dtype: str, tensor_parallel: int) -> int:
        """K and V of one token in all layers, in bytes, on one of `tensor_parallel` GPUs."""
        check_dtype("kv_dtype", kv_dtype, KV_DTYPES)
        self.check_tensor_parallel(tensor_parallel)
        per_layer = 2 * self.kv_heads * self.head_dim * BYTES_PER_ELEMENT[kv_dtype]
        return int(self.layers * per_layer) // tensor_parallel

    def linear_layers(self, tensor_parallel: int) -> tuple[LinearLayer, ...]:
        """One decoder layer's matrices on one GPU, fused as vLLM holds them (qkv, gate_up).

        qkv and up are split by outputs, o and down by inputs (Shoeybi et al., Megatron-LM,
        2019, section 3), which leaves one all-reduce after each pair.
        """
        self.check_tensor_parallel(tensor_parallel)
        attention = self.heads * self.head_dim // tensor_parallel
        kv = self.kv_heads * self.head_dim // tensor_parallel
        feed_forward = self.intermediate_size // tensor_parallel
        up, up_width = ("gate_up_proj", 2) if self.gated_mlp else ("up_proj", 1)
        return (
            LinearLayer("qkv_proj", self.hidden_size, attention + 2 * kv),
            LinearLayer("o_proj", attention, self.hidden_size),
            LinearLayer(up, self.hidden_size, up_width * feed_forward),
            LinearLayer("down_proj", feed_forward, self.hidden_size),
        )

    def vocab_rows(self, tensor_parallel: int) -> int:
        """Rows of the embedding or of lm_head on one GPU (vLLM pads the vocabulary to 64)."""
        padded = -(-self.vocab_size // VOCAB_PADDING) * VOCAB_PADDING
        return -(-padded // tensor_parallel)

    @property
    def norm_elements(self) -> int:
        """Weights of one norm: RMSNorm has a scale, LayerNorm with biases also an offset."""
        return self.hidden_size * (2 if self.biases else 1)

    @property
    def position_rows(self) -> int:
        """Rows of the learned position table (OPT's starts at row 2), 0 for rotary positions."""
        return self.max_model_len + OPT_POSITION_OFFSET if self.learned_positions else 0

    @property
    def parameters(self) -> int:
        """Number of parameters as published: unpadded, a tied embedding counted once."""
        linear = sum(
            layer.inputs * layer.outputs + (layer.outputs if self.biases else 0)
            for layer in self.linear_layers(1)
        )
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tied_embeddings else 2)
        positions = self.position_rows * self.hidden_size
        norms = (2 * self.layers + 1) * self.norm_elements
        return self.layers * linear + embeddings + positions + norms

    def weight_tensors(self, weight_dtype: str, tensor_parallel: int) -> list[WeightTensor]:
        """Every weight tensor on one of `tensor_parallel` GPUs, in the order it is loaded.

        Linear layers take `weight_dtype`; int4 adds a 16-bit scale and a 4-bit zero for each
        group of 128 inputs (GPTQ and AWQ checkpoints). Embeddings, lm_head, norms and biases
        stay at 16 bits, as quantized checkpoints leave them, or are of 32 with fp32.
        """
        check_dtype("weight_dtype", weight_dtype, WEIGHT_DTYPES)
        wide = _unquantized_bytes(weight_dtype)
        linear = self.linear_layers(tensor_parallel)
        norm = self.norm_elements * wide
        vocab = self.vocab_rows(tensor_parallel) * self.hidden_size * wide
        tensors = [WeightTensor("embed_tokens", vocab)]
        if self.learned_positions:
            positions = self.position_rows * self.hidden_size * wide
            tensors.append(WeightTensor("embed_positions", positions))
        for layer in range(self.layers):
            prefix = f"layers.{layer}."
            tensors.append(WeightTensor(prefix + "input_norm", norm))
            for matrix in linear:
                tensors.extend(_linear_tensors(prefix, matrix, weight_dtype, self.biases))
            tensors.append(WeightTensor(prefix + "post_attention_norm", norm))
        tensors.append(WeightTensor("norm", norm))
        if not self.tied_embeddings:
            tensors.append(WeightTensor("lm_head", vocab))
        return tensors

    def weight_bytes(self, weight_dtype: str, tensor_parallel: int) -> int:
        """Bytes of all weight tensors on one GPU."""
        return sum(t.nbytes for t in self.weight_tensors(weight_dtype, tensor_parallel))


def _unquantized_bytes(weight_dtype: str) -> int:
    """Of an element of a tensor that quantization leaves alone."""
    return 4 if weight_dtype == "fp32" else ACTIVATION_BYTES


def check_dtype(setting: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise SettingError unless `value` is one of `allowed`."""
    if value not in allowed:
        raise SettingError(f"{setting}={value} is unknown: choose one of {', '.join(allowed)}.")


def linear_weight_bytes(matrix: LinearLayer, weight_dtype: str) -> int:
    """Bytes of a matrix's weights with its scales and zeros, without a bias."""
    return sum(t.nbytes for t in _linear_tensors("", matrix, weight_dtype, biases=False))


def _linear_tensors(
    prefix: str, matrix: LinearLayer, weight_dtype: str, biases: bool
) -> list[WeightTensor]:
    name = prefix + matrix.name
    elements = matrix.inputs * matrix.outputs
    if weight_dtype == "int4":
        groups = -(-matrix.inputs // INT4_GROUP) * matrix.outputs
        tensors = [
            WeightTensor(f"{name}.qweight", elements // 2),
            WeightTensor(f"{name}.scales", groups * ACTIVATION_BYTES),
            WeightTensor(f"{name}.qzeros", groups // 2),
        ]
    else:
        nbytes = int(elements * BYTES_PER_ELEMENT[weight_dtype])
        tensors = [WeightTensor(f"{name}.weight", nbytes)]
    if biases:
        nbytes = matrix.outputs * _unquantized_bytes(weight_dtype)
        tensors.append(WeightTensor(f"{name}.bias", nbytes))
    return tensors
