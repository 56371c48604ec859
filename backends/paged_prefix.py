"""Paged blocks, with full ones found again by what is in them (automatic prefix caching)."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import ClassVar

from backends.base import Demand, Hold, Usage
from backends.block_pool import BlockPool
from backends.paged import Paged
from backends.prefix_pool import PrefixPool

KEY_BYTES = 16


class PagedPrefix(Paged):
    """A hit covers at most all tokens but the last, whose logits somebody has to compute. A block
    can be found as soon as the step that fills it is scheduled, as in vLLM."""

    caches_prefixes: ClassVar[bool] = True

    def __init__(
        self,
        *,
        name: str = "paged_prefix",
        block_size: int = 16,
        watermark: float = 0.0,
        alloc_conf: str = "",
    ) -> None:
        super().__init__(
            name=name, block_size=block_size, watermark=watermark, alloc_conf=alloc_conf
        )
        self._chains: dict[int, _Chain] = {}

    def _make_pool(self, num_blocks: int) -> BlockPool:
        self._prefixes = PrefixPool(num_blocks)
        return self._prefixes

    @property
    def evicted_blocks(self) -> int:  # type: ignore[override]
        """Cached blocks that were given to other content."""
        return self._prefixes.evicted_blocks

    def lookup(self, tokens: int, demand: Demand) -> int:
        return len(self._find(_Chain(demand, self.block_tokens), tokens)) * self.block_tokens

    def _find(self, chain: _Chain, tokens: int) -> list[int]:
        return self._prefixes.find(chain.keys((tokens - 1) // self.block_tokens))

    def reserve(self, sequence: int, tokens: int, room: int, demand: Demand) -> Hold | None:
        assert sequence not in self._tables, f"sequence {sequence} already holds memory"
        chain = _Chain(demand, self.block_tokens)
        found = self._find(chain, room)
        spare = self._watermark_blocks if self._tables else 0
        free = self._prefixes.num_free_blocks - self._prefixes.num_unheld(found) - spare
        if self._blocks(room) - len(found) > free:
            return None
        self._prefixes.share(found)
        self._tables[sequence] = found + self._prefixes.take(self._blocks(tokens) - len(found))
        chain.registered = len(found)
        self._chains[sequence] = chain
        self._register(sequence, max(tokens // self.block_tokens, len(found)))
        slots = len(self._tables[sequence]) * self.block_tokens
        return Hold(slots, cached_tokens=len(found) * self.block_tokens)

    def extend(self, sequence: int, tokens: int) -> Hold | None:
        hold = super().extend(sequence, tokens)
        if hold is not None:
            self._register(sequence, tokens // self.block_tokens)
        return hold

    def free(self, sequence: int, computed: int = 0) -> None:
        self._register(sequence, computed // self.block_tokens)
        super().free(sequence, computed)
        del self._chains[sequence]

    def _register(self, sequence: int, full_blocks: int) -> None:
        """The first `full_blocks` blocks can be found, and those after them no longer."""
        chain, table = self._chains[sequence], self._tables[sequence]
        for index in range(chain.registered, full_blocks):
            self._prefixes.register(table[index], chain.key(index))
        for block_id in table[full_blocks : chain.registered]:
            self._prefixes.unregister(block_id)
        chain.registered = full_blocks

    def usage(self) -> Usage:
        paged = super().usage()
        cached = self._prefixes.num_cached_blocks * self._block_bytes
        shared = self._prefixes.num_shared_references * self._block_bytes
        return paged._replace(
            held=paged.held - shared, cached=cached, free=paged.free - cached, shared=shared
        )


class _Chain:
    """Keys of a sequence's full blocks, made as they are asked for; the first `registered` of its
    blocks are in the pool's index."""

    def __init__(self, demand: Demand, block_tokens: int) -> None:
        assert demand.token_ids is not None, "prefix caching needs the tokens' ids"
        self.registered = 0
        self._token_ids = demand.token_ids
        self._block_tokens = block_tokens
        self._keys: list[bytes] = []
        self._parent = blake2b(demand.cache_salt.encode(), digest_size=KEY_BYTES).digest()

    def key(self, index: int) -> bytes:
        """The key of the sequence's block number `index`."""
        while len(self._keys) <= index:
            start = len(self._keys) * self._block_tokens
            content = self._token_ids(start, start + self._block_tokens)
            self._parent = blake2b(self._parent + content, digest_size=KEY_BYTES).digest()
            self._keys.append(self._parent)
        return self._keys[index]

    def keys(self, blocks: int) -> Iterator[bytes]:
        """The first `blocks` keys."""
        return map(self.key, range(blocks))
