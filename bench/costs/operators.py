"""What one operator of a step does on one GPU, and the roofline that turns work into seconds."""

from __future__ import annotations

import math
from typing import NamedTuple

from bench.gpu import Gpu
from bench.model.shape import (
    ACTIVATION_BYTES,
    BYTES_PER_ELEMENT,
    LinearLayer,
    ModelShape,
    linear_weight_bytes,
)


class Work(NamedTuple):
    """Arithmetic and memory traffic of an operator."""

    flops: float
    nbytes: float


class Speed(NamedTuple):
    """What a kernel reaches of a GPU, in FLOP/s and bytes/s."""

    flops_s: float
    bytes_s: float

    def seconds(self, work: Work) -> float:
        """Smooth roofline: sqrt(compute^2 + memory^2).

        A kernel at the ridge overlaps its loads and its arithmetic only in part: there the
        profiles show up to 1.4 times the larger of the two, far from it the larger alone.
        """
        return math.hypot(work.flops / self.flops_s, work.nbytes / self.bytes_s)


def linear_speed(gpu: Gpu, weight_dtype: str) -> Speed:
    """Speed of matrix multiplications.

    FP8 weights use FP8 cores where the GPU has them; int4 weights, and FP8 ones elsewhere, are
    widened in the kernel and multiplied at 16 bits.
    """
    tflops = gpu.fp16_tflops
    if weight_dtype == "fp8" and gpu.fp8_tflops is not None:
        tflops = gpu.fp8_tflops
    return Speed(
        tflops * 1e12 * gpu.compute_efficiency,
        gpu.bandwidth_gb_s * 1e9 * gpu.bandwidth_efficiency,
    )


def linear_work(matrix: LinearLayer, weight_dtype: str, tokens: int) -> Work:
    """A multiplication of `tokens` 16-bit rows with `matrix`, which is read once."""
    flops = 2 * tokens * matrix.inputs * matrix.outputs
    activations = tokens * (matrix.inputs + matrix.outputs) * ACTIVATION_BYTES
    return Work(flops, linear_weight_bytes(matrix, weight_dtype) + activations)


def elementwise_token_bytes(
    shape: ModelShape, kv_dtype: str, tensor_parallel: int
) -> dict[str, float]:
    """Bytes that each of one layer's elementwise operators moves for a token, by operator."""
    hidden = shape.hidden_size
    kv = 2 * shape.kv_heads * shape.head_dim // tensor_parallel
    rotated = (shape.heads + shape.kv_heads) * shape.head_dim // tensor_parallel
    feed_forward = shape.intermediate_size // tensor_parallel
    elements = {
        "input_norm": 2 * hidden,
        "post_attention_norm": 2 * hidden,
        "act": (3 if shape.gated_mlp else 2) * feed_forward,
        "add": 3 * hidden,
    }
    if not shape.learned_positions:
        elements["rope"] = 2 * rotated
    token_bytes = {name: float(n * ACTIVATION_BYTES) for name, n in elements.items()}
    token_bytes["kv_write"] = kv * (ACTIVATION_BYTES + BYTES_PER_ELEMENT[kv_dtype])
    return token_bytes
