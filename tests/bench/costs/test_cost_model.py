"""The cost model against hand calculations, and laws that hold for any step."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.costs import CostModel, StepWork
from bench.errors import SettingError
from bench.packaged import load_constants, load_gpu, load_model

LLAMA = load_model("llama3_8b")
A100 = load_gpu("a100_80gb")
CONSTANTS = load_constants()
READ_BYTES_S = 2039e9 * A100.bandwidth_efficiency
LAUNCH_S = A100.operator_overhead_us * 1e-6


def make_costs(
    *,
    model: str = "llama3_8b",
    gpu: str = "a100_80gb",
    weight_dtype: str = "fp16",
    kv_dtype: str = "fp16",
    tensor_parallel: int = 1,
    kv_block_tokens: int | None = None,
    step_overhead_us: float = 0.0,
) -> CostModel:
    return CostModel(
        shape=load_model(model),
        gpu=load_gpu(gpu),
        weight_dtype=weight_dtype,
        kv_dtype=kv_dtype,
        tensor_parallel=tensor_parallel,
        constants=replace(CONSTANTS, step_overhead_us=step_overhead_us),
        kv_block_tokens=kv_block_tokens,
    )


def decode(sequences: int, context: int) -> StepWork:
    return StepWork(
        tokens=sequences,
        sampled=sequences,
        decode_sequences=sequences,
        decode_context_tokens=sequences * context,
    )


def prefill(tokens: int) -> StepWork:
    return StepWork(
        tokens=tokens,
        sampled=1,
        prefill_attention_tokens=tokens * (tokens + 1) // 2,
        prefill_context_tokens=tokens,
    )


def test_one_decoding_sequence_takes_the_time_to_read_the_weights_once() -> None:
    # Every weight but the embedding's rows is read once; 5 launches a layer (4 matrices and
    # attention) and lm_head's are whole, 6 a layer and the embedding's and last norm's lighter.
    read_bytes = LLAMA.weight_bytes("fp16", 1) - 2 * 128_256 * 4096
    launches = 32 * (5 + 6 * CONSTANTS.elementwise_overhead_share) + 1
    launches += 2 * CONSTANTS.elementwise_overhead_share
    by_hand_s = read_bytes / READ_BYTES_S + launches * LAUNCH_S
    assert by_hand_s == pytest.approx(10.7e-3, rel=0.01)
    assert make_costs().step_s(decode(1, context=1)) == pytest.approx(by_hand_s, rel=0.003)


def test_a_steps_own_overhead_is_added_once_whatever_the_step() -> None:
    plain, slower = make_costs(), make_costs(step_overhead_us=10_000.0)
    for work in (decode(1, 1), decode(200, 900), prefill(5000)):
        assert slower.step_s(work) - plain.step_s(work) == pytest.approx(0.01)
        assert slower.step_parts(work) == plain.step_parts(work) | {"step": 0.01}
        assert sum(slower.step_parts(work).values()) == pytest.approx(slower.step_s(work))


def test_a_long_prefill_takes_the_time_of_its_arithmetic() -> None:
    # 2 FLOPs a token and parameter of the layers at the reached peak; reading them is nothing.
    tokens = 32_768
    layer_parameters = 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336)
    by_hand_s = 2 * tokens * layer_parameters / (312e12 * A100.compute_efficiency)
    linear_s = make_costs().step_parts(prefill(tokens))["linear"]
    assert linear_s == pytest.approx(by_hand_s, rel=0.02)


def test_attention_reads_the_kv_of_every_decoding_sequence() -> None:
    by_hand_s = 100 * 2000 * 131_072 / READ_BYTES_S
    attention_s = make_costs().step_parts(decode(100, context=2000))["attention"]
    assert attention_s == pytest.approx(by_hand_s, rel=0.02)
    halved_s = make_costs(kv_dtype="fp8").step_parts(decode(100, context=2000))["attention"]
    assert halved_s == pytest.approx(attention_s / 2, rel=0.05)


def test_a_long_prompts_attention_takes_the_time_of_its_arithmetic() -> None:
    # Two products of 2 FLOPs for each pair, head dimension and query head, in 32 layers.
    work = prefill(32_768)
    flops = 4 * work.prefill_attention_tokens * 32 * 128 * 32
    by_hand_s = flops / (312e12 * CONSTANTS.attention_compute_efficiency)
    assert make_costs().step_parts(work)["attention"] == pytest.approx(by_hand_s, rel=0.001)


@pytest.mark.parametrize(
    ("block_tokens", "low", "high"),
    [
        (16, 1.20, 1.26),  # Kwon et al., 2023, section 7.1
        (8, 1.26, 1.40),
        (1, 1.5, 2.5),
        (256, 1.15, 1.20),
    ],
)
def test_paged_attention_costs_more_at_small_blocks(
    block_tokens: int, low: float, high: float
) -> None:
    work = decode(64, context=1000)
    contiguous, paged = make_costs(), make_costs(kv_block_tokens=block_tokens)
    factor = paged.step_parts(work)["attention"] / contiguous.step_parts(work)["attention"]
    assert low <= factor <= high
    assert paged.step_parts(work) | {"attention": 0.0} == contiguous.step_parts(work) | {
        "attention": 0.0
    }


def test_weights_of_fewer_bits_are_read_faster() -> None:
    wide, fp8, int4 = (
        make_costs(weight_dtype=dtype).step_parts(decode(1, 1))["linear"]
        for dtype in ("fp16", "fp8", "int4")
    )
    assert fp8 == pytest.approx(wide / 2, rel=0.01)
    # 4 bits a weight and 20 a group of 128.
    assert int4 == pytest.approx(wide * (4 + 20 / 128) / 16, rel=0.01)


def test_fp8_computes_faster_only_where_there_are_fp8_cores() -> None:
    work = prefill(32_768)
    for gpu, speedup in (("a100_80gb", 1.0), ("h100_80gb", 2.0)):
        wide_s = make_costs(gpu=gpu).step_parts(work)["linear"]
        fp8_s = make_costs(gpu=gpu, weight_dtype="fp8").step_parts(work)["linear"]
        assert wide_s / fp8_s == pytest.approx(speedup, rel=0.03)


def test_gpus_that_share_a_model_read_less_and_exchange_activations() -> None:
    alone = make_costs(model="llama3_70b").step_parts(prefill(4096))
    shared = make_costs(model="llama3_70b", tensor_parallel=4).step_parts(prefill(4096))
    assert alone["all_reduce"] == 0
    assert shared["linear"] == pytest.approx(alone["linear"] / 4, rel=0.05)
    # Two all-reduces a layer and the embedding's: each GPU sends 2 x 3/4 of the activations.
    sent_bytes = 161 * 2 * 0.75 * 4096 * 8192 * 2
    by_hand_s = sent_bytes / (300e9 * CONSTANTS.interconnect_efficiency)
    by_hand_s += 161 * CONSTANTS.all_reduce_latency_us * 1e-6
    assert shared["all_reduce"] == pytest.approx(by_hand_s, rel=0.01)


def test_a_copy_reads_and_writes_every_byte() -> None:
    assert make_costs().copy_s(0) == 0
    assert make_costs().copy_s(1 << 30) == pytest.approx(2 * (1 << 30) / READ_BYTES_S + LAUNCH_S)


def test_driver_calls_cost_their_count_and_those_that_drain_the_device_more() -> None:
    # (100 + 10) us twice; a page mapped: create 29, map 2, set access 38; PyTorch's unmapping:
    # a synchronization of 10, unmap 34, release 23.
    assert make_costs().driver_s({"cudaMalloc": 2}) == pytest.approx(220e-6)
    mapped = {"cuMemCreate": 3, "cuMemMap": 3, "cuMemSetAccess": 3}
    assert make_costs().driver_s(mapped) == pytest.approx(3 * 69e-6)
    unmapped = {"stream_synchronize": 1, "cuMemUnmap": 1, "cuMemRelease": 1}
    assert make_costs().driver_s(unmapped) == pytest.approx(67e-6)
    assert make_costs().driver_s({}) == 0


def test_calls_that_a_steps_own_time_covers_are_free() -> None:
    assert make_costs().driver_s({"kernel_launch": 400, "copy": 3}) == 0


def test_a_driver_call_without_a_cost_is_refused() -> None:
    with pytest.raises(ValueError, match="cudaMallocManaged"):
        make_costs().driver_s({"cudaMallocManaged": 1})


def test_a_step_without_work_takes_no_time() -> None:
    assert make_costs(tensor_parallel=4, kv_block_tokens=16).step_s(StepWork(tokens=0)) == 0


def test_a_block_size_below_one_is_refused() -> None:
    with pytest.raises(SettingError, match="block size 0"):
        make_costs(kv_block_tokens=0)


COUNTS = st.integers(min_value=0, max_value=1 << 17)
STEPS = st.builds(
    StepWork,
    tokens=COUNTS,
    sampled=COUNTS,
    decode_sequences=COUNTS,
    decode_context_tokens=COUNTS,
    prefill_attention_tokens=COUNTS,
    prefill_context_tokens=COUNTS,
)
SETTINGS = {
    "one GPU": make_costs(),
    "shared": make_costs(model="llama3_70b", gpu="h100_80gb", tensor_parallel=4),
    "paged, quantized": make_costs(weight_dtype="int4", kv_dtype="fp8", kv_block_tokens=16),
    "OPT": make_costs(model="opt_13b"),
}


@pytest.mark.parametrize("setting", SETTINGS)
@given(work=STEPS, more=COUNTS, field=st.sampled_from(list(StepWork.__slots__)))
def test_more_work_never_takes_less_time(
    setting: str, work: StepWork, more: int, field: str
) -> None:
    larger = replace(work, **{field: getattr(work, field) + more})
    costs = SETTINGS[setting]
    assert costs.step_s(larger) >= costs.step_s(work) * (1 - 1e-12)


@pytest.mark.parametrize("setting", SETTINGS)
@given(work=STEPS)
def test_parts_add_up_to_the_step_first_and_remembered(setting: str, work: StepWork) -> None:
    costs = SETTINGS[setting]
    parts = costs.step_parts(work)
    assert set(parts) == {
        "linear", "attention", "lm_head", "all_reduce", "elementwise", "overhead", "step"
    }  # fmt: skip
    assert all(seconds >= 0 for seconds in parts.values())
    first, remembered = costs.step_s(work), costs.step_s(work)
    assert first == remembered
    assert math.isclose(first, sum(parts.values()), rel_tol=1e-9)


def test_every_copy_is_launched() -> None:
    one, many = make_costs().copy_s(1 << 30), make_costs().copy_s(1 << 30, copies=64)
    assert many - one == pytest.approx(63 * LAUNCH_S)
