"""Token ids of prompts, made from counters: no state, no seed, the same on every machine.

Token `i` of the block with key `k` is `mix(k + (i + 1) * GAMMA) mod vocab_size`: the SplitMix64
generator (Steele, Lea and Flood, OOPSLA 2014) started at `k`, so that any block can be made without
making the ones before it. Keys are themselves mixed from an id and a domain: blocks that are shared
by id and prompts that belong to one request never meet.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from workloads.base import Request
from workloads.settings import MAX_TOKENS, count

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_SHARED_BLOCK = np.uint64(0x243F6A8885A308D3)
_OUTPUT = np.uint64(0xA4093822299F31D0)
_OWN_PROMPT = np.uint64(0x13198A2E03707344)


def prompt_ids(request: Request, vocab_size: int) -> NDArray[np.int64]:
    """Token ids of the prompt, shape (prompt_tokens,), in [0, vocab_size).

    Each of the request's `prefix_ids` fills `prefix_block_tokens` tokens that depend on that id
    alone, the last one cut where the prompt ends. What is left depends on `request_id` alone: not
    on the workload or its seed, so that request 7 has the same prompt in every run of its length.
    Raises WorkloadError for a vocabulary of fewer than 2 tokens.
    """
    count("vocab_size", vocab_size, 2, MAX_TOKENS, "tokens", "use the model's vocabulary")
    shared_tokens = min(
        len(request.prefix_ids) * request.prefix_block_tokens, request.prompt_tokens
    )
    shared = _blocks(request.prefix_ids, request.prefix_block_tokens)[:shared_tokens]
    own_key = _keys((request.request_id,), _OWN_PROMPT)
    own = _stream(own_key, request.prompt_tokens - shared_tokens).reshape(-1)
    return (np.concatenate((shared, own)) % np.uint64(vocab_size)).astype(np.int64)


def output_ids(request: Request, vocab_size: int) -> NDArray[np.int64]:
    """Token ids that stand for what a model that is not run would answer, shape (output_tokens,):
    they depend on `request_id` alone."""
    key = _keys((request.request_id,), _OUTPUT)
    own = _stream(key, request.output_tokens).reshape(-1)
    return (own % np.uint64(vocab_size)).astype(np.int64)


def _blocks(ids: tuple[int, ...], block_tokens: int) -> NDArray[np.uint64]:
    return _stream(_keys(ids, _SHARED_BLOCK), block_tokens).reshape(-1)


def _keys(ids: tuple[int, ...], domain: np.uint64) -> NDArray[np.uint64]:
    return _mix(_mix(np.array(ids, dtype=np.uint64)) ^ domain)


def _stream(keys: NDArray[np.uint64], tokens: int) -> NDArray[np.uint64]:
    """Shape (len(keys), tokens): the first `tokens` outputs of each key's generator."""
    counters = np.arange(1, tokens + 1, dtype=np.uint64) * _GAMMA
    return _mix(keys[:, np.newaxis] + counters)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's output function: a bijection of 64-bit words. Arithmetic is modulo 2^64."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
