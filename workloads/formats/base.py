"""The contract of a trace format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

from workloads.settings import MAX_TOKENS

Line = tuple[int, str]
"""A line's number in its file, from 1, and its text without the line end; never blank."""


class TraceRow(NamedTuple):
    """One recorded request. `time_ns` counts from whatever the format counts from."""

    line: int
    time_ns: int
    prompt_tokens: int
    output_tokens: int
    prefix_ids: tuple[int, ...] = ()
    prefix_block_tokens: int = 0


class MalformedLineError(ValueError):
    """A line that is not of the format; the reader of the file adds the file's name.

    `column` is None where the line as a whole is wrong, and `value` then the line.
    """

    def __init__(self, line: int, column: str | None, value: object, problem: str) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
        where = f"line {line}" if column is None else f"line {line}, column {column}"
        super().__init__(f"{where}: {shown} {problem}")


class TraceFormat(Protocol):
    """How one kind of trace is written. Stateless: one instance serves every file."""

    name: str
    """The value of the setting `format` that selects it."""
    expects: str
    """What its first line looks like, for an error message."""

    def recognises(self, first_line: str) -> bool:
        """Whether a file that starts with this line, blank lines aside, is of this format."""
        ...

    def rows(self, lines: Iterable[Line]) -> Iterator[TraceRow]:
        """The requests in the file's order, read as it goes. Raises MalformedLineError."""
        ...


def token_count(line: int, column: str, value: Any) -> int:
    """A number of tokens. Raises MalformedLineError unless it is a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedLineError(line, column, value, "is not a whole number of tokens")
    if not 1 <= value <= MAX_TOKENS:
        problem = f"is not from 1 to {MAX_TOKENS:,} tokens; correct or remove the line"
        raise MalformedLineError(line, column, value, problem)
    return value
