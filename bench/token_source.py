"""What a sequence's tokens are, for backends that look at them."""

from __future__ import annotations

import numpy as np

from backends.base import TokenIds
from workloads.base import Request
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
