"""What the caching allocator does to contiguous buffers: jobs for the virtual GPU.

Buffers are one tensor a sequence of 1 MiB a token, so that tokens are MiB.
"""

from __future__ import annotations

from typing import Any

import torch

from backends.arenas.caching import CachingArena
from backends.base import Demand, KvLayout
from backends.contiguous import Contiguous
from bench.device.stats import AllocatorReader, external_fragmentation, hold_back

MIB = 1 << 20


def layout(budget_bytes: int) -> KvLayout:
    return KvLayout(1, MIB, budget_bytes // MIB, budget_bytes, "cuda")


def leave_on_the_card(mib: int) -> None:
    """Takes all but so much of the card, for the rest of the process."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    free, _ = torch.cuda.mem_get_info()
    hold_back(free - mib * MIB)
    assert torch.cuda.mem_get_info()[0] == mib * MIB


def checkerboard(payload: dict[str, Any]) -> dict[str, Any]:
    """20 of 60 MiB in use between two holes of 20, and then a sequence of 40 MiB."""
    leave_on_the_card(payload["card_mib"])
    backend = Contiguous(reserve="oracle", layout="sequence")
    backend.start(layout(60 * MIB))

    def reserve(sequence: int, tokens: int) -> bool:
        hold = backend.reserve(sequence, tokens, tokens, Demand(tokens, 1))
        backend.check_integrity()
        assert sum(backend.usage()) == 60 * MIB
        return hold is not None

    assert reserve(0, 60)
    backend.free(0)  # its memory stays with the allocator, as one block of 60 MiB
    assert all(reserve(sequence, 20) for sequence in (1, 2, 3))
    backend.free(1)
    backend.free(3)
    reader = AllocatorReader()
    before, largest = reader.read(), reader.largest_free_bytes()
    found = {
        "free_mib": backend.usage().free / MIB,
        "largest_free_mib": largest / MIB,
        "fragmentation": external_fragmentation(largest, before.total_free_bytes),
        "fits_an_empty_budget": backend.fits(Demand(40, 1)),
        "granted": reserve(4, 40),
    }
    after = reader.read()
    return found | {
        "free_mib_after": backend.usage().free / MIB,
        "ooms": after.num_ooms - before.num_ooms,
        "retries": after.num_alloc_retries - before.num_alloc_retries,
    }


def unsplit_blocks(payload: dict[str, Any]) -> dict[str, Any]:
    """19.5 MiB are given 20: three of them are within 59.75 MiB as asked, not as given."""
    arena = CachingArena(layout(payload["budget_bytes"]))
    size = 39 * MIB // 2
    first, second = arena.allocate([size]), arena.allocate([size])
    assert first is not None
    assert second is not None
    before = torch.cuda.memory_allocated()
    third = arena.allocate([size])
    arena.check_integrity()
    return {
        "allocated_mib": arena.usage().allocated / MIB,
        "requested_mib": arena.usage().requested / MIB,
        "third": third is not None,
        "left_behind": torch.cuda.memory_allocated() - before if third is None else None,
    }


def rounded_up(payload: dict[str, Any]) -> dict[str, Any]:
    """One buffer of 65 MiB in a budget of 90, wherever the allocator's settings round it to."""
    arena = CachingArena(layout(90 * MIB))
    buffers = arena.allocate([65 * MIB])
    arena.check_integrity()
    return {"granted": buffers is not None, "allocated_mib": arena.usage().allocated / MIB}


def oversize_block(payload: dict[str, Any]) -> dict[str, Any]:
    """With max_split_size_mb:20 a cached block of 60 MiB serves 41 whole; 19 more do not fit."""
    arena = CachingArena(layout(60 * MIB))
    whole = arena.allocate([60 * MIB])
    assert whole is not None
    arena.release(whole)
    first = arena.allocate([41 * MIB])
    usage = arena.usage()
    second = arena.allocate([19 * MIB])
    arena.check_integrity()
    return {
        "first": first is not None,
        "rounding_mib": (usage.allocated - usage.requested) / MIB,
        "free_mib": usage.free / MIB,
        "second": second is not None,
    }


def half_a_group(payload: dict[str, Any]) -> dict[str, Any]:
    """A group of four buffers of 20 MiB on a card that has room for three."""
    leave_on_the_card(60)
    arena = CachingArena(layout(80 * MIB))
    refused = arena.allocate([20 * MIB] * 4)
    arena.check_integrity()
    return {
        "refused": refused is None,
        "allocated": torch.cuda.memory_allocated(),
        "three": arena.allocate([20 * MIB] * 3) is not None,
    }


def others_tensors(payload: dict[str, Any]) -> dict[str, Any]:
    """Weights that were there before, and what another tenant takes, are no part of the budget."""
    weights = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    arena = CachingArena(layout(50 * MIB))
    buffers = arena.allocate([20 * MIB, 10 * MIB])
    usage = arena.usage()
    assert buffers is not None
    arena.release(buffers)
    empty = arena.usage()
    assert weights.is_cuda
    return {"mib": [n / MIB for n in usage], "empty_mib": [n / MIB for n in empty]}
