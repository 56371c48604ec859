"""How the branches of one request descend from each other: samples, and beams that survive."""

from __future__ import annotations

from collections.abc import Sequence

from workloads.base import Request


class Lineage:
    """`width` branches that have their first `trunk` tokens in common, the prompt at least.

    `parents` says, until memory follows, which branch each one goes on from: all from the only one
    when the prompt is computed; then, in a beam search, from those that the request's survivors
    name. Samples go their own ways.
    """

    def __init__(self, request: Request) -> None:
        self.width = request.branches
        self.parents: Sequence[int] | None = None
        self._survivors = request.survivors and request.survivors()
        # Tokens that each pair of branches has in common.
        self._common = [[request.prompt_tokens] * self.width for _ in range(self.width)]
        self.trunk = request.prompt_tokens

    def fork(self) -> None:
        """The trunk is computed: every branch goes on from it."""
        self.parents = (0,) * self.width

    def grow(self, known: int) -> Sequence[int] | None:
        """Every branch got a token after `known`; in a beam search those that survive go on, from
        the branches returned."""
        if self._survivors is None:
            return None
        parents = next(self._survivors)
        common = self._common
        self._common = [[known if p == q else common[p][q] for q in parents] for p in parents]
        self.trunk = min(map(min, self._common))
        if any(parent != branch for branch, parent in enumerate(parents)):
            self.parents = parents
        return self.parents
