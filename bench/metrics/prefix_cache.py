"""What a prefix cache found: one definition for summaries and figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(slots=True)
class PrefixCacheCounts:
    """Granted admissions, each counted once, in tokens unless named otherwise.

    Admissions after a preemption are apart (`resumed_*`): what they find is mostly the sequence's
    own work, saved, and no hit on anybody else's.
    """

    queries: int = 0
    query_tokens: int = 0
    hit_tokens: int = 0
    hit_blocks: int = 0
    resumed_queries: int = 0
    resumed_query_tokens: int = 0
    resumed_hit_tokens: int = 0

    def admitted(self, tokens: int, cached_tokens: int, blocks: int, resumed: bool) -> None:
        """An admission of `tokens` known tokens, of which `cached_tokens` were found, among them
        so many whole blocks."""
        if resumed:
            self.resumed_queries += 1
            self.resumed_query_tokens += tokens
            self.resumed_hit_tokens += cached_tokens
        else:
            self.queries += 1
            self.query_tokens += tokens
            self.hit_tokens += cached_tokens
            self.hit_blocks += blocks

    def summary(self, evicted_blocks: int | None) -> dict[str, Any]:
        """summary.json's `prefix_cache`. `hit_rate` = hit_tokens / query_tokens."""
        rate = self.hit_tokens / self.query_tokens if self.query_tokens else None
        return asdict(self) | {"hit_rate": rate, "evicted_blocks": evicted_blocks}
