"""Next tokens from logits: the likeliest, or drawn at a temperature, the same in every run."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol

import torch
from torch import Tensor


class Asks(Protocol):
    """A sequence that wants a token after its `known` ones: one in each of its branches, or, where
    it has only one so far, as many as its request has."""

    @property
    def id(self) -> int: ...
    @property
    def known(self) -> int: ...
    @property
    def branches(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def temperature(self) -> float | None: ...
    @property
    def seed(self) -> int | None: ...


class Sampler:
    """Greedy at temperature 0. Above, the draw depends on the seed, the request, the branch and the
    place of the token alone, so that neither batching nor the backend changes it; with a seed of
    the request's own, not on which request it is either. What a request does not say is as here."""

    def __init__(self, temperature: float, seed: int) -> None:
        self._temperature = temperature
        self._seed = seed

    def sample(self, logits: Tensor, askers: Sequence[Asks]) -> list[list[int]]:
        """Token ids for each of `askers`; logits (rows, vocabulary) has a row a branch."""
        first, answers = 0, []
        greedy: list[int] = logits.argmax(dim=-1).tolist()
        for asker in askers:
            rows = range(first, first + asker.branches)
            first += asker.branches
            if self._temperature_of(asker) == 0:
                chosen = [greedy[row] for row in rows]
                answers.append(chosen * (asker.width // len(chosen)))
            else:
                answers.append(
                    [
                        self._draw(logits[rows[branch % len(rows)]], asker, branch)
                        for branch in range(asker.width)
                    ]
                )
        return answers

    def _draw(self, logits: Tensor, asker: Asks, branch: int) -> int:
        """The Gumbel-max draw: argmax of logits / temperature + Gumbel noise."""
        name = f"{self._seed} {asker.id}" if asker.seed is None else f"own {asker.seed}"
        place = f"{name} {branch} {asker.known}".encode()
        seed = int.from_bytes(blake2b(place, digest_size=7).digest(), "little")
        generator = torch.Generator().manual_seed(seed)
        noise = torch.empty(len(logits)).exponential_(generator=generator).log_().neg_()
        return int((logits.cpu() / self._temperature_of(asker) + noise).argmax())

    def _temperature_of(self, asker: Asks) -> float:
        return self._temperature if asker.temperature is None else asker.temperature
