"""The cost model: how long a step, a copy and driver calls take on a GPU that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.costs.constants import CostConstants
from bench.costs.operators import (
    Speed,
    Work,
    elementwise_token_bytes,
    linear_speed,
    linear_work,
)
from bench.errors import SettingError
from bench.gpu import Gpu
from bench.model.shape import (
    ACTIVATION_BYTES,
    WEIGHT_DTYPES,
    LinearLayer,
    ModelShape,
    check_dtype,
)


@dataclass(frozen=True, slots=True)
class StepWork:
    """What an engine step computes, summed over its sequences.

    tokens: new tokens computed, prefill and decode.
    sampled: sequences that need logits (decoding ones and those that end their prefill).
    decode_sequences: sequences that compute a single token.
    decode_context_tokens: KV tokens that these read.
    prefill_attention_tokens: query-key pairs of prefill chunks, each chunk's length times the
        average context its tokens attend to.
    prefill_context_tokens: KV tokens that prefill chunks read.
    """

    tokens: int
    sampled: int = 0
    decode_sequences: int = 0
    decode_context_tokens: int = 0
    prefill_attention_tokens: int = 0
    prefill_context_tokens: int = 0


class CostModel:
    """Modelled times, in seconds, of one model on one kind of GPU (docs/costs.md).

    kv_block_tokens: block size of a backend whose attention reads through a block table, None
    for contiguous KV.

    Raises SettingError for a dtype, a tensor-parallel degree or a block size that cannot be.
    """

    def __init__(
        self,
        *,
        shape: ModelShape,
        gpu: Gpu,
        weight_dtype: str,
        kv_dtype: str,
        tensor_parallel: int,
        constants: CostConstants,
        kv_block_tokens: int | None = None,
    ) -> None:
        check_dtype("weight_dtype", weight_dtype, WEIGHT_DTYPES)
        kv_token_bytes = shape.kv_bytes_per_token(kv_dtype, tensor_parallel)
        self._shape = shape
        self._weight_dtype = weight_dtype
        self._tensor_parallel = tensor_parallel
        self._constants = constants
        self._matrices = shape.linear_layers(tensor_parallel)
        self._lm_head = LinearLayer("lm_head", shape.hidden_size, shape.vocab_rows(tensor_parallel))
        self._linear_speed = linear_speed(gpu, weight_dtype)
        self._fp16_speed = linear_speed(gpu, "fp16")
        self._attention_speed = Speed(
            gpu.fp16_tflops * 1e12 * constants.attention_compute_efficiency,
            self._fp16_speed.bytes_s,
        )
        self._elementwise_bytes_s = (
            gpu.bandwidth_gb_s * 1e9 * constants.elementwise_bandwidth_efficiency
        )
        self._interconnect_bytes_s = gpu.interconnect_gb_s * 1e9 * constants.interconnect_efficiency
        self._operator_s = gpu.operator_overhead_us * 1e-6
        self._elementwise_s = self._operator_s * constants.elementwise_overhead_share
        self._elementwise_token_bytes = elementwise_token_bytes(shape, kv_dtype, tensor_parallel)
        self._driver_call_s = constants.driver_call_s()
        self._step_s = constants.step_overhead_us * 1e-6
        self._paged_factor = _paged_factor(constants, kv_block_tokens)
        query_elements = shape.layers * shape.heads * shape.head_dim // tensor_parallel
        self._pair_flops = 4 * query_elements
        self._query_bytes = 2 * query_elements * ACTIVATION_BYTES
        self._kv_token_bytes = kv_token_bytes
        self._by_tokens: dict[int, float] = {}
        self._by_sampled: dict[int, float] = {}

    def step_s(self, batch: StepWork) -> float:
        """Seconds of one step: the sum of `step_parts`, with what depends only on the number of
        tokens or of sampled sequences remembered."""
        tokens, sampled = batch.tokens, batch.sampled
        by_tokens = self._by_tokens.get(tokens)
        if by_tokens is None:
            by_tokens = self._by_tokens[tokens] = sum(self._token_parts(tokens).values())
        by_sampled = self._by_sampled.get(sampled)
        if by_sampled is None:
            by_sampled = self._by_sampled[sampled] = sum(self._sampled_parts(sampled).values())
        return by_tokens + by_sampled + self._attention_s(batch) + self._step_s

    def step_parts(self, batch: StepWork) -> dict[str, float]:
        """Seconds of one step by part; `overhead` is that of every operator's launch, `step` what
        a step takes beyond its operators."""
        token_parts = self._token_parts(batch.tokens)
        sampled_parts = self._sampled_parts(batch.sampled)
        return {
            "linear": token_parts["linear"],
            "attention": self._attention_s(batch),
            "lm_head": sampled_parts["lm_head"],
            "all_reduce": token_parts["all_reduce"] + sampled_parts["all_reduce"],
            "elementwise": token_parts["elementwise"],
            "overhead": token_parts["overhead"] + sampled_parts["overhead"],
            "step": self._step_s,
        }

    def layer_operator_s(self, tokens: int) -> dict[str, float]:
        """Seconds of each linear and elementwise operator of one layer, with its overhead."""
        seconds = {
            matrix.name: self._operator_s
            + self._linear_speed.seconds(linear_work(matrix, self._weight_dtype, tokens))
            for matrix in self._matrices
        }
        for name, token_bytes in self._elementwise_token_bytes.items():
            moved_s = tokens * token_bytes / self._elementwise_bytes_s
            seconds[name] = self._elementwise_s + moved_s
        return seconds

    def copy_s(self, nbytes: int, copies: int = 1) -> float:
        """Seconds of `copies` copies of `nbytes` in all within the device: each byte is read and
        written, and each copy is launched."""
        if nbytes == 0:
            return 0.0
        return 2 * nbytes / self._fp16_speed.bytes_s + copies * self._operator_s

    def driver_s(self, calls: Mapping[str, int]) -> float:
        """Seconds of driver calls, counted by kind ("cudaMalloc", "cuMemMap", ...).

        Raises ValueError for a kind that `CostConstants.driver_call_s` does not know.
        """
        unknown = calls.keys() - self._driver_call_s.keys()
        if unknown:
            raise ValueError(
                f"no cost for driver calls {sorted(unknown)}: known are "
                f"{sorted(self._driver_call_s)}"
            )
        return sum(self._driver_call_s[name] * count for name, count in calls.items())

    def _token_parts(self, tokens: int) -> dict[str, float]:
        if tokens == 0:
            return {"linear": 0.0, "all_reduce": 0.0, "elementwise": 0.0, "overhead": 0.0}
        layers, hidden_bytes = self._shape.layers, self._shape.hidden_size * ACTIVATION_BYTES
        linear_s = sum(
            self._linear_speed.seconds(linear_work(matrix, self._weight_dtype, tokens))
            for matrix in self._matrices
        )
        layer_bytes = sum(self._elementwise_token_bytes.values())
        outside_bytes = 4 * hidden_bytes  # the embedding and the last norm read and write a row
        elementwise_bytes = tokens * (layers * layer_bytes + outside_bytes)
        attention_operators, outside_operators = 1, 2
        layer_overhead_s = (len(self._matrices) + attention_operators) * self._operator_s + len(
            self._elementwise_token_bytes
        ) * self._elementwise_s
        return {
            "linear": layers * linear_s,
            "all_reduce": (2 * layers + 1) * self._all_reduce_s(tokens * hidden_bytes),
            "elementwise": elementwise_bytes / self._elementwise_bytes_s,
            "overhead": layers * layer_overhead_s + outside_operators * self._elementwise_s,
        }

    def _sampled_parts(self, sampled: int) -> dict[str, float]:
        if sampled == 0:
            return {"lm_head": 0.0, "all_reduce": 0.0, "overhead": 0.0}
        logits_bytes = sampled * self._lm_head.outputs * ACTIVATION_BYTES
        return {
            "lm_head": self._fp16_speed.seconds(linear_work(self._lm_head, "fp16", sampled)),
            "all_reduce": self._gather_s(logits_bytes),
            "overhead": self._operator_s,
        }

    def _attention_s(self, batch: StepWork) -> float:
        """Attention in all layers, without its launches."""
        decode = Work(
            batch.decode_context_tokens * self._pair_flops,
            batch.decode_context_tokens * self._kv_token_bytes
            + batch.decode_sequences * self._query_bytes,
        )
        seconds = self._attention_speed.seconds(decode)
        if batch.prefill_attention_tokens or batch.prefill_context_tokens:
            prefill = Work(
                batch.prefill_attention_tokens * self._pair_flops,
                batch.prefill_context_tokens * self._kv_token_bytes,
            )
            seconds += self._attention_speed.seconds(prefill)
        return seconds * self._paged_factor

    def _all_reduce_s(self, nbytes: int) -> float:
        """Ring all-reduce: each GPU sends its bytes 2 (n - 1) / n times."""
        return 2 * self._ring_s(nbytes) + self._collective_latency_s

    def _gather_s(self, nbytes: int) -> float:
        """Each GPU receives the `nbytes` of every other one."""
        return self._tensor_parallel * self._ring_s(nbytes) + self._collective_latency_s

    def _ring_s(self, nbytes: int) -> float:
        share = (self._tensor_parallel - 1) / self._tensor_parallel
        return share * nbytes / self._interconnect_bytes_s

    @property
    def _collective_latency_s(self) -> float:
        return 0.0 if self._tensor_parallel == 1 else self._constants.all_reduce_latency_us * 1e-6


def _paged_factor(constants: CostConstants, kv_block_tokens: int | None) -> float:
    if kv_block_tokens is None:
        return 1.0
    if kv_block_tokens < 1:
        raise SettingError(f"block size {kv_block_tokens} must be at least 1 token: 16 is usual.")
    per_block = constants.paged_attention_block_tokens / kv_block_tokens
    return 1.0 + constants.paged_attention_fixed + per_block
