"""Token ids of prompts, made from counters: no state, no seed, the same on every machine.

Token `i` of the segment with key `k` is `mix(k + (i + 1) * GAMMA) mod vocab_size`: the SplitMix64
generator (Steele, Lea and Flood, OOPSLA 2014) started at `k`, so that any segment can be made
without making the ones before it. Keys are themselves mixed from an id and a domain: segments that
are shared by id and words that belong to one request never meet.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from workloads.base import Request, Segment, Source
from workloads.settings import MAX_TOKENS, count

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_DOMAINS = {
    Source.SHARED: 0x243F6A8885A308D3,
    Source.OUTPUT: 0xA4093822299F31D0,
    Source.PROMPT: 0x13198A2E03707344,
}


def prompt_ids(request: Request, vocab_size: int) -> NDArray[np.int64]:
    """Token ids of the prompt, shape (prompt_tokens,), in [0, vocab_size).

    The segments of the request's prefix, the last one cut where the prompt ends; what is left
    depends on `request_id` alone: not on the workload or its seed, so that request 7 has the same
    prompt in every run of its length. Raises WorkloadError for a vocabulary of fewer than 2 tokens.
    """
    left = request.prompt_tokens - sum(segment.tokens for segment in request.prefix)
    own = Segment(Source.PROMPT, request.request_id, max(left, 0))
    return _ids((*request.prefix, own), vocab_size)[: request.prompt_tokens]


def output_ids(request: Request, vocab_size: int) -> NDArray[np.int64]:
    """Token ids that stand for what a model that is not run would answer, shape (output_tokens,):
    they depend on `request_id` alone."""
    return _ids((Segment(Source.OUTPUT, request.request_id, request.output_tokens),), vocab_size)


def _ids(segments: Sequence[Segment], vocab_size: int) -> NDArray[np.int64]:
    count("vocab_size", vocab_size, 2, MAX_TOKENS, "tokens", "use the model's vocabulary")
    names = np.array([segment.id for segment in segments], dtype=np.uint64)
    domains = np.array([_DOMAINS[segment.source] for segment in segments], dtype=np.uint64)
    tokens = np.array([segment.tokens for segment in segments])
    keys = np.repeat(_mix(_mix(names) ^ domains), tokens)
    first = np.repeat(np.cumsum(tokens) - tokens, tokens)
    counters = (np.arange(1, len(keys) + 1) - first).astype(np.uint64) * _GAMMA
    return (_mix(keys + counters) % np.uint64(vocab_size)).astype(np.int64)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's output function: a bijection of 64-bit words. Arithmetic is modulo 2^64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
