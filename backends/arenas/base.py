"""The contract of an arena: contiguous buffers out of a fixed budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch

Buffers = TypeVar("Buffers")


class ArenaUsage(NamedTuple):
    """Bytes asked for, bytes given (rounding included) and bytes left, read separately."""

    requested: int
    allocated: int
    free: int


class Arena(Protocol, Generic[Buffers]):
    """Gives out groups of buffers, all or none, and never more than its budget. `error` is what
    PyTorch said when it last refused a group, None where it was not asked."""

    error: str | None

    def allocate(self, sizes: Sequence[int]) -> Buffers | None:
        """One buffer of each size in bytes, or None with nothing changed."""
        ...

    def release(self, buffers: Buffers) -> None:
        """Gives a group back."""
        ...

    def can_ever_allocate(self, sizes: Sequence[int], groups: int = 1) -> bool:
        """Whether the empty arena could hold so many groups of these sizes."""
        ...

    def tensors(self, buffers: Buffers) -> Sequence[torch.Tensor]:
        """A group's buffers, as uint8 tensors of the sizes asked for."""
        ...

    def usage(self) -> ArenaUsage:
        """What is held now."""
        ...

    def check_integrity(self) -> None:
        """Raises AssertionError where the arena's books do not agree."""
        ...
