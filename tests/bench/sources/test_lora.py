"""LoRA adapters: their sizes by hand, and who has a slot."""

from __future__ import annotations

from bench.packaged import load_model
from bench.sources.base import Served
from bench.sources.lora import Lora
from tests.bench.sources.support import job, settings

# A layer of the small model has four matrices of 512 x 512 (q, k, v, o), two of 512 x 2,048 (gate,
# up) and one of 2,048 x 512 (down): 4 x 1,024 and 3 x 2,560 numbers for each of the rank's, of 2
# bytes, in 2 layers.
ATTENTION_A_RANK = 4 * 1_024 * 2 * 2
BYTES_A_RANK = ATTENTION_A_RANK + 3 * 2_560 * 2 * 2
LAYERS = 2


def test_an_adapter_has_two_matrices_for_each_of_the_models() -> None:
    source = settings("lora", adapters=1, ranks=[8])
    found = job("held_by_step", source=source, steps=2)
    assert found["held"] == [8 * BYTES_A_RANK] * 2
    assert found["counts"] == {"loads": 1, "unloads": 0, "on_base_model": 0}
    assert found["left"] == [8 * BYTES_A_RANK]  # it stays loaded until another needs the slot
    assert found["allocations"] == 14 * LAYERS
    found = job("held_by_step", source=source | {"modules": "attention"}, steps=1)
    assert found["held"] == [8 * ATTENTION_A_RANK]
    assert found["allocations"] == 8 * LAYERS


def test_an_adapter_of_llama_3_8b_has_a_pair_for_each_matrix_of_the_checkpoint() -> None:
    """q and o are 4,096 x 4,096, k and v 4,096 x 1,024, gate and up 4,096 x 14,336 and down
    14,336 x 4,096, in 32 layers. On two GPUs the outputs are half, but of o and down the inputs."""
    attention = 2 * (4096 + 4096) + 2 * (4096 + 1024)
    assert attention == 26_624
    adapter = 32 * 2 * 32 * (attention + 3 * (4096 + 14_336))
    assert adapter == 167_772_160
    half = 32 * 2 * 32 * (2 * (4096 + 2048) + 2 * (4096 + 512) + 3 * (4096 + 7168))
    model = load_model("llama3_8b")
    one, two = (Served(model, gpus, 0, 8, 0, lambda *_: None) for gpus in (1, 2))
    assert Lora(slots=1, ranks=[32]).planned_bytes(one) == adapter
    assert Lora(slots=1, ranks=[32]).planned_bytes(two) == half
    only = Lora(slots=1, ranks=[32], modules="attention").planned_bytes(one)
    assert only == 32 * 2 * 32 * attention


def test_slots_of_the_largest_rank_are_set_aside_but_no_more_than_adapters() -> None:
    source = settings("lora", adapters=5, slots=3, ranks=[4, 16])
    assert job("held_by_step", source=source, steps=1)["planned"] == 3 * 16 * BYTES_A_RANK
    source |= {"slots": 9}
    assert job("held_by_step", source=source, steps=1)["planned"] == 5 * 16 * BYTES_A_RANK


def test_an_adapter_keeps_its_slot_while_it_is_used_and_until_another_needs_it() -> None:
    source = settings("lora", adapters=2, slots=1, ranks=[2, 4], exponent=0)
    both, still_loaded, other = job("lora_slots", source=source)
    assert both == [2 * BYTES_A_RANK, {"loads": 1, "unloads": 0, "on_base_model": 1}]
    assert still_loaded == both
    assert other == [4 * BYTES_A_RANK, {"loads": 2, "unloads": 1, "on_base_model": 1}]
