"""LoRA adapters: their sizes by hand, and who has a slot."""

from __future__ import annotations

from tests.bench.sources.support import job, settings

# A layer of the small model has matrices of 512 x 1,536, 512 x 512, 512 x 4,096 and 2,048 x 512
# (qkv, o, gate and up, down): 2,048 + 1,024 + 4,608 + 2,560 numbers for each of the rank's, of
# 2 bytes, in 2 layers.
BYTES_A_RANK = 10_240 * 2 * 2
ATTENTION_A_RANK = (2_048 + 1_024) * 2 * 2


def test_an_adapter_has_two_matrices_for_each_of_the_models() -> None:
    source = settings("lora", adapters=1, ranks=[8])
    found = job("held_by_step", source=source, steps=2)
    assert found["held"] == [8 * BYTES_A_RANK] * 2
    assert found["counts"] == {"loads": 1, "unloads": 0, "on_base_model": 0}
    assert found["left"] == [8 * BYTES_A_RANK]  # it stays loaded until another needs the slot
    found = job("held_by_step", source=source | {"modules": "attention"}, steps=1)
    assert found["held"] == [8 * ATTENTION_A_RANK]


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
