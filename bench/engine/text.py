"""What a sequence says: the ids of its tokens, branch by branch, where they are computed."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence


class Text:
    """The ids of a sequence's known tokens: one branch until the first tokens come, which may be
    several, then as many branches as came."""

    def __init__(self, prompt: Iterable[int]) -> None:
        self.branches = [array("i", prompt)]

    def __call__(self, start: int, stop: int) -> bytes:
        """backends.base.TokenIds, of the first branch."""
        return self.branches[0][start:stop].tobytes()

    def append(self, token_ids: Sequence[int]) -> None:
        """One more token in every branch; several for a text of one branch make as many."""
        if len(self.branches) < len(token_ids):
            self.branches = [self.branches[0][:] for _ in token_ids]
        for branch, token_id in zip(self.branches, token_ids, strict=True):
            branch.append(token_id)

    def follow(self, parents: Sequence[int]) -> None:
        """New branch i says what branch parents[i] said."""
        self.branches = [self.branches[parent][:] for parent in parents]
