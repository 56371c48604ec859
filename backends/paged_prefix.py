"""Paged blocks, with full ones found again by what is in them (automatic prefix caching)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
        self._looked_up: tuple[Demand, _Chain] | None = None

    def _make_pool(self, num_blocks: int) -> BlockPool:
        self._prefixes = PrefixPool(num_blocks)
        return self._prefixes

    @property
    def evicted_blocks(self) -> int:  # type: ignore[override]
        """Cached blocks that were given to other content."""
        return self._prefixes.evicted_blocks

    def lookup(self, tokens: int, demand: Demand) -> int:
        return len(self._find(demand, tokens)) * self.block_tokens

    def _chain(self, demand: Demand) -> _Chain:
        """The chain of a sequence that holds nothing yet: the one made for its lookup, if that
        was the last."""
        if self._looked_up is None or self._looked_up[0] is not demand:
            self._looked_up = demand, _Chain(demand, self.block_tokens)
        return self._looked_up[1]

    def _find(self, demand: Demand, tokens: int) -> list[int]:
        blocks = demand.identified(tokens - 1) // self.block_tokens
        return self._prefixes.find(self._chain(demand).keys(blocks))

    def reserve(self, sequence: int, tokens: int, room: int, demand: Demand) -> Hold | None:
        found, chain = self._find(demand, room), self._chain(demand)
        held = len(found) - self._prefixes.num_unheld(found)
        wanted = self._blocks_in_all(room, demand) - held
        if wanted > self._prefixes.num_free_blocks - self._spare_blocks:
            self._refuse(wanted)
            return None
        self._prefixes.share(found)
        table = found + self._prefixes.take(self._blocks(tokens) - len(found))
        hold = self._hold(sequence, table, max(tokens, len(found) * self.block_tokens))
        chain.registered = len(found)
        self._chains[sequence] = chain
        self._looked_up = None
        self._register(sequence, max(tokens // self.block_tokens, len(found)))
        return hold._replace(cached_tokens=len(found) * self.block_tokens)

    def extend(
        self, sequence: int, tokens: int, parents: Sequence[int] | None = None
    ) -> Hold | None:
        hold = super().extend(sequence, tokens, parents)
        if hold is not None:
            self._register(sequence, tokens // self.block_tokens)
        return hold

    def free(self, sequence: int, computed: int = 0) -> None:
        self._register(sequence, computed // self.block_tokens)
        super().free(sequence, computed)
        del self._chains[sequence]

    def _register(self, sequence: int, full_blocks: int) -> None:
        """The first `full_blocks` blocks can be found, and those after them no longer. What the
        branches of a sequence write is nobody else's prefix."""
        chain, table = self._chains[sequence], self._held[sequence].tables[0]
        full_blocks = min(full_blocks, chain.blocks)
        for index in range(chain.registered, full_blocks):
            self._prefixes.register(table[index], chain.key(index))
        for block_id in table[full_blocks : chain.registered]:
            self._prefixes.unregister(block_id)
        chain.registered = full_blocks

    def usage(self) -> Usage:
        paged = super().usage()
        cached = self._prefixes.num_cached_blocks * self._block_bytes
        return paged._replace(cached=cached, free=paged.free - cached)


class _Chain:
    """Keys of a sequence's full blocks, at most `blocks` of them, made as they are asked for; the
    first `registered` are in the pool's index."""

    def __init__(self, demand: Demand, block_tokens: int) -> None:
        assert demand.token_ids is not None, "prefix caching needs the tokens' ids"
        self.blocks = demand.identified(1 << 62) // block_tokens
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
