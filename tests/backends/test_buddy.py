"""The buddy arena, by hand and against a bitmap of its slots."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.arenas.base import ArenaUsage
from backends.arenas.buddy import BuddyArena, BuddyBlock
from backends.base import KvLayout


def arena(slots: int, *, token_bytes: int = 1, tail_bytes: int = 0) -> BuddyArena:
    return BuddyArena(KvLayout(1, token_bytes, 1, slots * token_bytes + tail_bytes, "cpu"))


def take(buddies: BuddyArena, slots: int) -> BuddyBlock:
    block = buddies.allocate([slots])
    assert block is not None
    return block


def taken(offset: int, size: int, requested: int) -> BuddyBlock:
    """What `take` returns: one buffer, in slots of one byte."""
    return BuddyBlock(offset, size, requested, (requested,))


def test_splits_and_merges() -> None:
    """16 slots: 3 take 4, from 16 split into 8 + 4 + 4; 5 take 8; 2 take half of the last 4."""
    buddies = arena(16)
    three = take(buddies, 3)
    five = take(buddies, 5)
    two = take(buddies, 2)
    assert (three, five, two) == (taken(0, 4, 3), taken(8, 8, 5), taken(4, 2, 2))
    assert buddies.usage() == ArenaUsage(requested=10, allocated=14, free=2)
    assert buddies.allocate([3]) is None, "2 slots are left"
    assert take(buddies, 1) == taken(6, 1, 1)
    buddies.release(three)
    assert buddies.allocate([5]) is None, "4 free slots beside a 4 that is partly used"
    buddies.release(two)
    buddies.release(taken(6, 1, 1))
    assert take(buddies, 5) == taken(0, 8, 5), "all four parts merged again"
    buddies.release(five)
    assert buddies.allocate([9]) is None
    buddies.check_integrity()


def test_an_arena_that_is_no_power_of_two_is_used_to_its_last_slot() -> None:
    """13 = 8 + 4 + 1, each as large as it gets: 12 are never one block."""
    buddies = arena(13)
    assert buddies.can_ever_allocate([8])
    assert not buddies.can_ever_allocate([9])
    assert [take(buddies, n).offset for n in (8, 4, 1)] == [0, 8, 12]
    assert buddies.usage().free == 0


def test_a_block_never_merges_across_the_parts() -> None:
    """12 = 8 + 4: the 4 at slot 8 has its buddy at slot 12, which is not there."""
    buddies = arena(12)
    blocks = [take(buddies, 4) for _ in range(3)]
    assert [block.offset for block in blocks] == [8, 0, 4]
    for block in blocks:
        buddies.release(block)
    assert buddies.allocate([12]) is None
    assert take(buddies, 8) == taken(0, 8, 8)


def test_buffers_are_counted_in_whole_slots_and_the_tail_is_lost() -> None:
    buddies = arena(8, token_bytes=10, tail_bytes=7)
    assert buddies.usage() == ArenaUsage(requested=0, allocated=7, free=80)
    assert buddies.allocate([5, 6]) == BuddyBlock(0, 2, 2, (5, 6))  # 11 bytes in slots of 10
    assert buddies.usage() == ArenaUsage(requested=20, allocated=27, free=60)


class Bitmap:
    """Which slots are used, and the aligned blocks that are whole and free."""

    def __init__(self, slots: int) -> None:
        self.used = [False] * slots
        self.parts, start = [], 0
        for bit in reversed(range(slots.bit_length())):
            if slots >> bit & 1:
                self.parts.append((start, 1 << bit))
                start += 1 << bit

    def place(self, size: int) -> int | None:
        """Where a block of a power of two goes: in the smallest free block, the lowest one."""
        free = [
            (block, at)
            for start, part in self.parts
            for block in (1 << bit for bit in range(part.bit_length()))
            for at in range(start, start + part, block)
            if block >= size and self._whole(at, block) and not self._parent_is_free(at, block)
        ]
        return min(free)[1] if free else None

    def _whole(self, at: int, size: int) -> bool:
        return not any(self.used[at : at + size])

    def _parent_is_free(self, at: int, size: int) -> bool:
        start, part = next(p for p in self.parts if p[0] <= at < p[0] + p[1])
        parent = start + (at - start) // (2 * size) * (2 * size)
        return 2 * size <= part and self._whole(parent, 2 * size)

    def mark(self, block: BuddyBlock, used: bool) -> None:
        for slot in range(block.offset, block.offset + block.size):
            assert self.used[slot] != used, "given out twice"
            self.used[slot] = used


actions = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), st.integers(1, 20)),
        st.tuples(st.just("release"), st.integers(0, 30)),
    ),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(slots=st.integers(1, 75), actions=actions)
def test_equal_to_a_search_through_a_bitmap(slots: int, actions: list[tuple[str, int]]) -> None:
    buddies, bitmap = arena(slots), Bitmap(slots)
    live: list[BuddyBlock] = []
    for action, number in actions:
        if action == "allocate":
            size = next(1 << bit for bit in range(6) if 1 << bit >= number)
            expected = bitmap.place(size)
            block = buddies.allocate([number])
            assert (block and (block.offset, block.size)) == (
                None if expected is None else (expected, size)
            )
            if block is not None:
                bitmap.mark(block, used=True)
                live.append(block)
        elif live:
            block = live.pop(number % len(live))
            bitmap.mark(block, used=False)
            buddies.release(block)
        buddies.check_integrity()
        usage = buddies.usage()
        assert usage.free == bitmap.used.count(False)
        assert usage.allocated == bitmap.used.count(True)
        assert usage.requested == sum(block.requested for block in live)
