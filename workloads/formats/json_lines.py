"""Traces that are JSON lines: an object a request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from workloads.base import Segment, Source
from workloads.formats.base import (
    MalformedLineError,
    Tally,
    TraceRow,
    rows_of,
    token_count,
    whole,
)
from workloads.formats.opening import numbered_lines

_MAX_TIME_NS = 10**21
_MAX_ID = 2**63 - 1


class JsonFormat(NamedTuple):
    """JSON lines with keys for the lengths of prompt and output, and one for the time.

    Of `prompt` and `output` the first name that an object has counts. `time` is None where there
    are no times. Requests share what their `ids` share, one for each block of `block_tokens` of the
    prompt; an object without ids, or with fewer than its blocks, has a prompt of its own from there
    on. `keys` are further ones that tell the format, `no_keys` those of others.
    """

    name: str
    prompt: Sequence[str]
    output: Sequence[str]
    time: str | None = None
    ns_per_unit: int = 1
    unit: str = ""
    ids: str | None = None
    block_tokens: int = 0
    keys: Sequence[str] = ()
    no_keys: Sequence[str] = ()
    estimates_tokens: bool = False

    @property
    def expects(self) -> str:
        times = [] if self.time is None else [self.time]
        names = [*self.keys, *times, " or ".join(self.prompt), " or ".join(self.output)]
        return f"a JSON object with {', '.join(names)}"

    def recognises(self, first_line: str) -> bool:
        record = json_object(first_line)
        if record is None or any(key in record for key in self.no_keys):
            return False
        keys = [*self.keys, *([] if self.time is None else [self.time])]
        lengths = (self.prompt, self.output)
        return all(key in record for key in keys) and all(
            any(name in record for name in names) for names in lengths
        )

    def rows(self, path: Path, tally: Tally) -> Iterator[TraceRow]:
        return rows_of(numbered_lines(path), self._row, tally)

    def _row(self, number: int, line: str) -> TraceRow:
        record = checked_object(number, line)
        time_ns = 0 if self.time is None else self._time_ns(number, line, record)
        prompt_tokens = length(number, line, record, self.prompt)
        output_tokens = length(number, line, record, self.output)
        prefix = self._prefix(number, record, prompt_tokens)
        return TraceRow(number, time_ns, prompt_tokens, output_tokens, prefix)

    def _time_ns(self, number: int, line: str, record: dict[str, Any]) -> int:
        assert self.time is not None
        name, value = find(number, line, record, [self.time])
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and 0 <= value * self.ns_per_unit <= _MAX_TIME_NS:  # NaN is in no range
            nanoseconds: int | float = value * self.ns_per_unit
            return round(nanoseconds)
        most = f"{_MAX_TIME_NS / self.ns_per_unit:g}"
        problem = f"is not a number of {self.unit} from 0 to {most}"
        raise MalformedLineError(number, name, value, problem)

    def _prefix(self, number: int, record: dict[str, Any], tokens: int) -> tuple[Segment, ...]:
        ids = record.get(self.ids, []) if self.ids is not None else []
        name, blocks = self.ids, -(-tokens // (self.block_tokens or 1))
        if not isinstance(ids, list):
            raise MalformedLineError(number, name, ids, "is not a list of block ids")
        if len(ids) > blocks:
            of = f"{blocks} blocks of {self.block_tokens}"
            problem = f"has {len(ids)} ids for {tokens} tokens, {of}"
            raise MalformedLineError(number, name, ids, problem)
        for block_id in ids:
            if type(block_id) is not int or not 0 <= block_id <= _MAX_ID:
                problem = "is not a whole number from 0 to 2^63 - 1"
                raise MalformedLineError(number, name, block_id, problem)
        return tuple(Segment(Source.SHARED, block_id, self.block_tokens) for block_id in ids)


def json_object(line: str) -> dict[str, Any] | None:
    """The object that a line is, None if it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def checked_object(number: int, line: str) -> dict[str, Any]:
    """The object that a line is. Raises MalformedLineError."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MalformedLineError(number, None, line, f"is not JSON ({error})") from None
    if not isinstance(record, dict):
        raise MalformedLineError(number, None, line, "is not a JSON object")
    return record


def find(number: int, line: str, record: dict[str, Any], names: Sequence[str]) -> tuple[str, Any]:
    """The first of the names that the object has, and its value. Raises MalformedLineError."""
    for name in names:
        if name in record:
            return name, record[name]
    raise MalformedLineError(number, " or ".join(names), line, "lacks this column")


def length(number: int, line: str, record: dict[str, Any], names: Sequence[str]) -> int:
    """The length that goes by one of the names. Raises MalformedLineError."""
    name, value = find(number, line, record, names)
    return token_count(number, name, whole(value))
