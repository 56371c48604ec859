"""What prompts share with earlier prompts and answers: exact, from the segments they are made of.

A trie whose edges are segments. One segment is the start of another where both are of one stream
(workloads/tokens.py), so that two prompts share their equal leading segments and the shorter of
the first two that differ in length alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from bench.traffic.sample import Ints
from workloads.base import Request, Segment, Source


class _Edge:
    """The segments of one stream that follow a prefix: the longest seen, and what came after each
    length."""

    __slots__ = ("after", "longest")

    def __init__(self) -> None:
        self.longest = 0
        self.after: dict[int, _Node] = {}


_Stream = tuple[Source, int]
_Node = dict[_Stream, _Edge]


class PrefixPool:
    """Every prompt and answer so far, with no bound on memory.

    `quoted` are the ids of the requests whose words or answers are in the prefix of another:
    those of the rest cannot be found, and are not kept.
    """

    def __init__(self, quoted: Collection[int]) -> None:
        self._quoted = quoted
        self._roots: dict[str, _Node] = {}

    def ask(self, request: Request) -> int:
        """How many leading tokens of the prompt an earlier one had, the last token aside: a server
        computes it to have the next one. The prompt and its answer are in the pool from then
        on."""
        node = self._roots.setdefault(request.cache_salt, {})
        found, matches = 0, True
        for source, id_, tokens in self._said(request):
            edge = node.setdefault((source, id_), _Edge())
            if matches:
                found += min(tokens, edge.longest)
                matches = tokens in edge.after
            edge.longest = max(edge.longest, tokens)
            node = edge.after.setdefault(tokens, {})
        return min(found, request.prompt_tokens - 1)

    def _said(self, request: Request) -> Iterator[Segment]:
        """The prompt's segments, the last one cut where the prompt ends, and the answer's."""
        left = request.prompt_tokens
        for segment in request.prefix:
            if tokens := min(segment.tokens, left):
                yield segment._replace(tokens=tokens)
            left -= tokens
        if request.request_id in self._quoted:
            if left:
                yield Segment(Source.PROMPT, request.request_id, left)
            yield Segment(Source.OUTPUT, request.request_id, request.output_tokens)


def quoted_ids(requests: Collection[Request]) -> set[int]:
    """Requests whose own words or answers are in another's prefix."""
    return {
        segment.id
        for request in requests
        for segment in request.prefix
        if segment.source is not Source.SHARED
    }


def found_tokens(requests: Collection[Request]) -> Ints:
    """Of each request, in the order that they are sent: how many leading tokens of its prompt an
    earlier one and its answer had."""
    pool = PrefixPool(quoted_ids(requests))
    return np.array([pool.ask(request) for request in requests], dtype=np.int64)
