"""The contract of a trace format."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from workloads.base import PATIENT, Client, Segment
from workloads.settings import MAX_TOKENS

Line = tuple[int, str]
"""A line's number in its file, from 1, and its text without the line end; never blank."""

_WHOLE_NUMBER = re.compile(r"([+-]?\d{1,18})(?:\.0*)?", re.ASCII)


class TraceRow(NamedTuple):
    """One recorded request. `time_ns` counts from whatever the format counts from, 0 where it has
    no times. `request_id` is None where the order numbers the requests."""

    line: int
    time_ns: int
    prompt_tokens: int
    output_tokens: int
    prefix: tuple[Segment, ...] = ()
    kind: str = ""
    cache_salt: str = ""
    branches: int = 1
    request_id: int | None = None
    client: Client = PATIENT


@runtime_checkable
class FromTrace(Protocol):
    """What a part of a workload is that read a recorded file."""

    def trace_facts(self) -> dict[str, Any]:
        """What was read of the file and what was left out, for previews and summaries."""
        ...


def facts_by_setting(parts: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """The facts of those parts, by the setting that each is, that read a recorded file."""
    return {
        setting: part.trace_facts()
        for setting, part in parts.items()
        if isinstance(part, FromTrace)
    }


class MalformedLineError(ValueError):
    """A line that is not of the format; the reader of the file adds the file's name.

    `column` is None where the line as a whole is wrong, and `value` then the line.
    """

    def __init__(self, line: int, column: str | None, value: object, problem: str) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
        where = f"line {line}" if column is None else f"line {line}, column {column}"
        super().__init__(f"{where}: {shown} {problem}")


@dataclass(slots=True)
class Tally:
    """The choices of one reading of a file, and what it met.

    `skip_bad_rows` leaves out rows that cannot be read instead of ending; `keep_failed` takes
    requests that were recorded as failed as ones of a single output token, else they are left
    out; `output_tokens` is the output of requests whose file says none.
    """

    skip_bad_rows: bool = False
    keep_failed: bool = False
    output_tokens: int | None = None
    rows: int = 0
    """Rows met, the ones left out too."""
    skipped: int = 0
    first_skipped: str | None = None
    failed: int = 0
    silent: int = 0
    """Conversations without a prompt or an answer, which are no requests."""

    def bad(self, error: MalformedLineError) -> None:
        """A row cannot be read: counts it, or raises the error."""
        if not self.skip_bad_rows:
            raise error
        self.skipped += 1
        self.first_skipped = self.first_skipped or str(error)


class TraceFormat(Protocol):
    """How one kind of trace is written. Stateless: one instance serves every file."""

    @property
    def name(self) -> str:
        """The value of the setting `format` that selects it."""
        ...

    @property
    def expects(self) -> str:
        """What its first line looks like, for an error message."""
        ...

    @property
    def time(self) -> str | None:
        """The column of the times of arrival, None where its rows have none."""
        ...

    @property
    def estimates_tokens(self) -> bool:
        """Whether it has texts in place of lengths, whose tokens are estimated."""
        ...

    def recognises(self, first_line: str) -> bool:
        """Whether a file that starts with this line, blank lines aside, is of this format."""
        ...

    def rows(self, path: Path, tally: Tally) -> Iterator[TraceRow]:
        """The requests in the file's order, read as it goes. A row that cannot be read goes to
        `tally.bad`; raises MalformedLineError where the file as a whole is not of the format,
        and what `workloads.formats.opening.reading` makes a sentence of."""
        ...


def rows_of(
    items: Iterable[tuple[int, Any]],
    row: Callable[[int, Any], TraceRow | None],
    tally: Tally,
) -> Iterator[TraceRow]:
    """The requests that `row` makes of numbered lines, or of what else a file has; None is none.
    A MalformedLineError of `row` goes to `tally.bad`."""
    for number, item in items:
        tally.rows += 1
        try:
            made = row(number, item)
        except MalformedLineError as error:
            tally.bad(error)
            continue
        if made is not None:
            yield made


def token_count(line: int, column: str, value: Any) -> int:
    """A number of tokens. Raises MalformedLineError unless it is a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedLineError(line, column, value, "is not a whole number of tokens")
    if not 1 <= value <= MAX_TOKENS:
        problem = f"is not from 1 to {MAX_TOKENS:,} tokens; correct or remove the line"
        raise MalformedLineError(line, column, value, problem)
    return value


def whole(value: Any) -> Any:
    """The whole number that a text or a float stands for, such as `44` or `7564.0`; anything else
    as it is."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    match = _WHOLE_NUMBER.fullmatch(value) if isinstance(value, str) else None
    return value if match is None else int(match[1])
