"""What a sequence's tokens are, for backends that look at them."""

from __future__ import annotations

import numpy as np

from backends.base import TokenIds
from bench.engine.text import Text
from workloads.base import Request, Source
from workloads.tokens import output_ids, prompt_ids


def token_source(request: Request, vocab_size: int) -> TokenIds:
    """The request's token ids, made when first asked for: its prompt, then what stands for the
    model's answer."""
    made: list[bytes] = []

    def token_ids(start: int, stop: int) -> bytes:
        if not made:
            both = (prompt_ids(request, vocab_size), output_ids(request, vocab_size))
            made.append(np.concatenate(both).astype(np.int32).tobytes())
        return made[0][4 * start : 4 * stop]

    return token_ids


class TextSource:
    """Texts whose tokens are computed. A later turn's prompt has the answers that were given."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._awaited: dict[int, Text] = {}

    def __call__(self, request: Request) -> Text:
        prompt = prompt_ids(request, self._vocab_size)
        start = 0
        for segment in request.prefix:
            said = self._awaited.get(segment.id) if segment.source is Source.OUTPUT else None
            if said is not None:
                answer = said.branches[0][-segment.tokens :]
                prompt[start : start + len(answer)] = answer
            start += segment.tokens
        text = Text(prompt.tolist())
        if request.next_turn is not None:
            self._awaited[request.request_id] = text
        return text
