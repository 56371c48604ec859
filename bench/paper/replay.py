"""A trace's prompts through a prefix cache alone, one after the other: what of them it finds.

Runs in a process of its own (bench/device/launcher.py), since backends import PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from backends.base import Demand, KvLayout
from backends.paged import Paged
from backends.paged_prefix import PagedPrefix
from backends.paged_radix import PagedRadix
from bench.token_source import token_source
from workloads.trace import TraceWorkload

CACHES: dict[str, Callable[..., Paged]] = {"hash": PagedPrefix, "radix": PagedRadix}
TOKEN_BYTES = 8  # of one layer: only how many tokens fit counts, in whole segments of 2 MiB
VOCAB_SIZE = 128_256  # Llama 3's


def hit_rate(payload: dict[str, Any]) -> dict[str, int]:
    """Prompt tokens asked and found, and requests too long for the pool.

    `payload`: cache (a key of CACHES), block_tokens, pool_tokens, path of the trace and limit
    (requests, or None). Nothing runs beside a request: it is freed, and so kept as cached, before
    the next one comes. Answers are not cached, for a trace does not say what they were.
    """
    cache = CACHES[payload["cache"]](block_size=payload["block_tokens"])
    pool_tokens = payload["pool_tokens"]
    cache.start(KvLayout(1, TOKEN_BYTES, payload["block_tokens"], pool_tokens * TOKEN_BYTES, "cpu"))
    asked = found = skipped = 0
    trace = TraceWorkload(path=payload["path"], limit=payload["limit"])
    for request in trace.requests(seed=0):
        tokens = request.prompt_tokens
        demand = Demand(tokens, 1, token_source(request, VOCAB_SIZE), request.cache_salt)
        hold = cache.reserve(request.request_id, tokens, tokens, demand)
        asked += tokens
        if hold is None:
            skipped += 1
            continue
        found += hold.cached_tokens
        cache.free(request.request_id, tokens)
    return {"asked_tokens": asked, "found_tokens": found, "skipped": skipped}
