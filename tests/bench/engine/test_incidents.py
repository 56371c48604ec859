"""What an incident says of memory, derived by hand: blocks of 16 slots in host memory."""

from __future__ import annotations

from typing import Any

import pytest

from backends.base import Backend, KvLayout
from backends.contiguous import Contiguous
from backends.paged import Paged
from backends.paged_prefix import PagedPrefix
from bench.engine.incidents import Refused
from bench.incidents.rules import KvState, Layer, card_layer, headroom_layer, kv_layer
from bench.metrics.tally import Tally
from tests.bench.engine.lab import Lab, limits

TOKEN_BYTES = 8192
SLOTS = 160
MIB = 1 << 20
TERMS = ("token_states", "reservation", "internal", "rounding", "cached", "free")


def lab(backend: Backend, slots: int = SLOTS + 16, **changes: Any) -> Lab:
    """A pool's null block comes on top; a budget is whole MiB for its segments."""
    budget = -(-slots * TOKEN_BYTES // (2 * MIB)) * 2 * MIB
    backend.start(KvLayout(1, TOKEN_BYTES, 128, budget, "cpu"))
    return Lab(backend, budget, TOKEN_BYTES, limits(**changes), max_model_len=128)


def slots(incident: dict[str, Any]) -> dict[str, float]:
    return {term: incident[f"{term}_bytes"] / TOKEN_BYTES for term in TERMS}


def test_an_incident_has_the_six_terms_who_holds_them_and_what_was_wanted() -> None:
    """2 MiB are 256 slots in 16 blocks, one the null block. The first request holds 7 blocks, the
    third takes 8, and the fourth wants 8 too."""
    it = lab(Paged())
    it.send((100, 20), (10, 1))
    it.step()
    it.send((120, 8), (120, 8))
    it.step()
    it.engine.stop(it.now)
    (incident,) = it.engine.incidents.drain()
    assert incident["kind"] == "reserve_refused"
    assert incident["request_id"] == 3
    # 101 live tokens and the prompt of 120 that this step computes; 119 + 127 in the end.
    assert incident["live_tokens"] == 221
    assert slots(incident) == {
        "token_states": 221, "reservation": (112 - 101) + (127 - 120), "internal": 1,
        "rounding": 16, "cached": 0, "free": 0,
    }  # fmt: skip
    assert sum(slots(incident).values()) == 256
    assert incident["kv_budget_bytes"] == 2 * MIB
    assert incident["held_bytes"] == 240 * TOKEN_BYTES
    assert incident["wanted_bytes"] == incident["needed_bytes"] == 8 * 16 * TOKEN_BYTES
    # All 15 blocks of the pool hold a live token.
    assert incident["usable_bytes"] == incident["token_blocks_bytes"] == 240 * TOKEN_BYTES
    assert (incident["active_sequences"], incident["waiting"]) == (2, 1)
    assert incident["layer"] == Layer.CAPACITY
    assert incident["error"] is None


def test_a_pool_whose_blocks_all_hold_tokens_is_short_of_capacity() -> None:
    """Two hold 7 blocks each, and both want another at token 113: there is one. The 15 unfilled
    slots of that one are no room: no block can be had of them."""
    it = lab(Paged())
    it.send((112, 10), (112, 10))
    it.step()
    it.step()
    first, *_ = it.engine.incidents.drain()
    assert (first["kind"], first["request_id"]) == ("extend_refused", 1)
    assert first["wanted_bytes"] == 16 * TOKEN_BYTES
    assert first["needed_bytes"] == 16 * TOKEN_BYTES
    assert first["live_tokens"] == 112 + 113, "the first has its token of this step"
    assert first["layer"] == Layer.CAPACITY
    assert first["preempted_request"] == 1


def test_samples_of_a_full_pool_are_short_of_capacity_too() -> None:
    """Four samples each, which share their prompt's blocks, of which the last is copied as they
    part; those that lost their memory come back with all of their samples."""
    it = lab(Paged())
    for prompt in (40, 41, 30, 20):
        it.add(prompt, 40, branches=4)
    it.run()
    incidents = it.engine.incidents.drain()
    assert {incident["kind"] for incident in incidents} == {"reserve_refused", "extend_refused"}
    assert any(incident["needed_bytes"] > 4 * 16 * TOKEN_BYTES for incident in incidents)
    assert {incident["layer"] for incident in incidents} == {Layer.CAPACITY}


def test_blocks_larger_than_sixteen_tokens_are_a_policy() -> None:
    """Of 256 slots in blocks of 64 three blocks can be had. Two requests take two of them for 1
    token and one for 1: 65 tokens are 5 blocks of 16, 2 more are another, and 12 would do."""
    it = lab(Paged(block_size=64))
    it.send((65, 5), (1, 5), (2, 5))
    it.step()
    it.engine.stop(it.now)
    (incident,) = it.engine.incidents.drain()
    assert incident["usable_bytes"] == 192 * TOKEN_BYTES
    assert incident["token_blocks_bytes"] == (80 + 16) * TOKEN_BYTES
    assert (incident["wanted_bytes"], incident["needed_bytes"]) == (
        64 * TOKEN_BYTES,
        16 * TOKEN_BYTES,
    )
    assert incident["layer"] == Layer.KV_POLICY


def test_blocks_of_one_token_are_no_smaller_than_what_tokens_need() -> None:
    """A pool of single slots, all of them filled: what a token needs is its own block."""
    it = lab(Paged(block_size=1))
    it.send((120, 8), (120, 8), (30, 8))
    it.step()
    it.engine.stop(it.now)
    (incident,) = it.engine.incidents.drain()
    assert incident["token_blocks_bytes"] == incident["token_states_bytes"] == 240 * TOKEN_BYTES
    assert incident["needed_bytes"] == 30 * TOKEN_BYTES
    assert incident["layer"] == Layer.CAPACITY


def test_a_buffer_that_grows_wants_another_one() -> None:
    """Of 256 slots 125 and 100 are held; 126 for one more token do not fit in the rest."""
    it = lab(Contiguous(reserve="grow", layout="sequence"))
    it.send((125, 3), (100, 3))
    it.step()
    it.step()
    incident, *_ = it.engine.incidents.drain()
    assert incident["wanted_bytes"] == 126 * TOKEN_BYTES
    # Of 8 blocks, 128 slots, it holds 125.
    assert incident["needed_bytes"] == 3 * TOKEN_BYTES
    assert incident["layer"] == Layer.KV_POLICY
    assert incident["kv_pooled"] is False


def test_blocks_found_in_others_hands_need_no_room() -> None:
    """Of 15 blocks 7 and 7 are held. Request 3 is alike request 0 in 32 tokens, 2 blocks of 8."""
    it = lab(PagedPrefix())
    it.send((100, 25), (100, 20), (1, 1), (120, 8))
    it.step()
    it.engine.stop(it.now)
    (incident,) = it.engine.incidents.drain()
    assert incident["request_id"] == 3
    assert incident["wanted_bytes"] == incident["needed_bytes"] == 6 * 16 * TOKEN_BYTES
    assert incident["layer"] == Layer.CAPACITY, "200 live tokens, and 96 more, of 256"


def test_all_refusals_are_counted_by_kind_layer_and_size() -> None:
    it = lab(Paged())
    it.send((60, 2), (60, 5), (100, 9), (120, 8))  # 4, 4, 7 and 8 of 15 blocks
    it.run()
    log = it.engine.incidents
    (incident,) = log.drain()
    assert incident["refusals"] == log.refusals == 2
    (key,) = log.failures
    assert key == ("reserve_refused", incident["layer"])
    # 8 blocks are exactly 1 MiB.
    assert log.failures[key].as_dict() == {"counts": {str(MIB): 2}, "sum": 2 * MIB}


class Room:
    """A source's room, as far as incidents look."""

    def __init__(self, wanted_bytes: int, left_bytes: int, error: str | None = None) -> None:
        self.wanted_bytes, self.left_bytes, self.error = wanted_bytes, left_bytes, error


def test_a_source_that_a_limit_refuses_lacks_what_kv_memory_took() -> None:
    it = lab(Paged())
    log = it.engine.incidents
    log.source_refused("lora", Room(2 * MIB + 100, 100), 1, 1.0)
    log.source_refused("lora", Room(2 * MIB + 100, 100), 2, 2.0)
    log.source_served("lora", 4.0)
    log.source_refused("graphs", Room(2 * MIB + 101, 100), 1, 5.0)
    log.finish()
    lora, graphs = log.drain()
    assert (lora["layer"], lora["refusals"], lora["waited_s"]) == (Layer.WORKSPACE, 3, 3.0)
    assert (graphs["layer"], graphs["waited_s"]) == (Layer.CAPACITY, None)
    assert lora["headroom_left_bytes"] == 100


def test_where_there_is_no_allocator_to_ask_the_layer_is_not_known() -> None:
    it = lab(Paged())
    it.engine.incidents.activation_refused(1.0, Refused("no memory", 300, 500), 7)
    it.engine.incidents.activation_refused_twice(2.0)
    (incident,) = it.engine.incidents.drain()
    assert incident["layer"] is None
    assert (incident["wanted_bytes"], incident["needed_bytes"]) == (300, 500)
    assert (incident["refusals"], incident["last_s"]) == (2, 2.0)
    assert (incident["preempted_request"], incident["ended_run"]) == (7, True)


def state(*, pooled: bool) -> KvState:
    """Of 100: 50 live, in blocks 55, 20 unfilled, 5 rounding, 25 free."""
    return KvState(100, 98, 50, 55, 15, 5, 5, 0, 25, pooled)


@pytest.mark.parametrize(
    ("wanted", "needed", "in_one_piece", "layer"),
    [
        (30, 1, True, "allocator"),  # 25 free and 5 of rounding
        (31, 43, True, "kv_policy"),  # of 98 blocks take 55
        (30, 43, False, "kv_policy"),
        (60, 44, True, "capacity"),
    ],
)
def test_the_rule_of_kv_requests(wanted: int, needed: int, in_one_piece: bool, layer: str) -> None:
    assert kv_layer(state(pooled=False), wanted, needed, in_one_piece=in_one_piece) == layer


@pytest.mark.parametrize(
    ("pooled", "needed", "layer"),
    [
        (False, 10, "allocator"),
        (False, 30, "kv_policy"),  # 15 of 20 unfilled and 5 of rounding come back
        (False, 31, "workspace"),
        (False, 85, "workspace"),  # buffers take 75
        (False, 86, "capacity"),
        (True, 10, "allocator"),
        (True, 11, "workspace"),
        (True, 110, "workspace"),  # the pool takes all 100
        (True, 111, "capacity"),
    ],
)
def test_the_rule_of_what_is_beside_kv_memory(pooled: bool, needed: int, layer: str) -> None:
    assert card_layer(state(pooled=pooled), needed, 10) == layer
    if layer in ("workspace", "capacity"):
        assert headroom_layer(state(pooled=pooled), needed, 10) == layer


def test_a_tally_rounds_up_to_powers_of_two() -> None:
    tally = Tally()
    for size in (0, 1, 2, 3, 4, 5):
        tally.add(size)
    tally.add(1 << 30, times=2)
    assert tally.as_dict() == {
        "counts": {"1": 2, "2": 1, "4": 2, "8": 1, str(1 << 30): 2},
        "sum": 15 + (2 << 30),
    }
