"""Traces that are tables: CSV with a header, a line a request."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from workloads.formats.base import (
    MalformedLineError,
    Tally,
    TraceRow,
    rows_of,
    token_count,
    whole,
)
from workloads.formats.opening import numbered_lines, text_blocks

Clock = Callable[[str], int | None]
"""Reads a time as whole nanoseconds; None for what is none."""

_TIME = r'([^",\n]+)'
_TOKENS = r"(\d{1,9})(?:\.0+)?"
_OTHER = r'[^",\n]*'


class TableFormat(NamedTuple):
    """CSV with a column for the lengths of prompts, one for those of outputs and one for times.

    Columns are found by name, wherever they are; of `prompt` and `output` the first name that the
    header has. `time` is None where there are no times, else `clock` reads them, and `time_like`
    says what they are. A row of no output tokens is a failed request where `zero_is_failed`.
    """

    name: str
    prompt: Sequence[str]
    output: Sequence[str]
    time: str | None = None
    clock: Clock = int
    time_like: str = ""
    zero_is_failed: bool = False
    estimates_tokens: bool = False

    @property
    def expects(self) -> str:
        return f"a header with {', '.join(' or '.join(names) for names in self.wanted())}"

    def wanted(self) -> list[Sequence[str]]:
        """The names that each column may have: time (if any), prompt, output."""
        times = [] if self.time is None else [(self.time,)]
        return [*times, self.prompt, self.output]

    def recognises(self, first_line: str) -> bool:
        try:
            names = csv_values(1, first_line)
        except MalformedLineError:
            return False
        return all(any(name in names for name in known) for known in self.wanted())

    def rows(self, path: Path, tally: Tally) -> Iterator[TraceRow]:
        number, header = next(numbered_lines(path), (1, ""))
        table = _Table(self, number, header, tally)
        for first, text in text_blocks(path, number):
            yield from table.rows(first, text)


class _Table:
    """One file's columns. A block whose lines are all as expected is taken apart by one pattern,
    which is quick; any other line by line, to say what is wrong with one or to find that it is
    right after all (quotes, spaces)."""

    def __init__(self, kind: TableFormat, number: int, header: str, tally: Tally) -> None:
        self._kind, self._tally = kind, tally
        self._names = csv_values(number, header)
        self._columns = [self._find(number, header, known) for known in kind.wanted()]
        patterns = dict.fromkeys(self._columns, _TOKENS)
        if kind.time is not None:
            patterns[kind.time] = _TIME
        fields = ",".join(patterns.get(name, _OTHER) for name in self._names)
        self._pattern = re.compile(f"^{fields}$", re.ASCII | re.MULTILINE)
        order = [name for name in self._names if name in patterns]
        self._groups = [order.index(name) for name in self._columns]

    def rows(self, first: int, text: str) -> Iterator[TraceRow]:
        """The requests of a block of lines."""
        found = self._pattern.findall(text)
        if len(found) == text.count("\n") + (not text.endswith("\n")):
            return self._quickly(first, text, found)
        lines = ((number, line.strip()) for number, line in enumerate(text.split("\n"), first))
        return rows_of((line for line in lines if line[1]), self._row, self._tally)

    def _quickly(self, first: int, text: str, found: list[tuple[str, ...]]) -> Iterator[TraceRow]:
        *times, prompt_at, output_at = self._groups
        clock, tally = self._kind.clock, self._tally
        refused_output = None if self._kind.zero_is_failed else 0
        lines: list[str] = []
        for number, fields in enumerate(found, first):
            time_ns = clock(fields[times[0]]) if times else 0
            prompt_tokens, output_tokens = int(fields[prompt_at]), int(fields[output_at])
            if time_ns is None or not prompt_tokens or output_tokens == refused_output:
                lines = lines or text.split("\n")
                yield from rows_of([(number, lines[number - first])], self._row, tally)
                continue
            tally.rows += 1
            if output_tokens or self._keeps_failed():
                yield TraceRow(number, time_ns, prompt_tokens, output_tokens or 1)

    def _row(self, number: int, line: str) -> TraceRow | None:
        """A line's request, None for one that failed and is not kept."""
        time_ns, prompt, output = self._values(number, line)
        prompt_tokens = token_count(number, self._columns[-2], whole(prompt))
        output_tokens = whole(output)
        if output_tokens == 0 and self._kind.zero_is_failed:
            if not self._keeps_failed():
                return None
            output_tokens = 1
        output_tokens = token_count(number, self._columns[-1], output_tokens)
        return TraceRow(number, time_ns, prompt_tokens, output_tokens)

    def _keeps_failed(self) -> bool:
        """Counts a failed request."""
        self._tally.failed += 1
        return self._tally.keep_failed

    def _values(self, number: int, line: str) -> tuple[int, str, str]:
        values = csv_values(number, line)
        if len(values) != len(self._names):
            names = f"{len(self._names)} are expected: {', '.join(self._names)}"
            raise MalformedLineError(number, None, line, f"has {len(values)} values; {names}")
        fields = dict(zip(self._names, values, strict=True))
        *times, prompt, output = (fields[name] for name in self._columns)
        return self._time_ns(number, times[0]) if times else 0, prompt, output

    def _time_ns(self, number: int, text: str) -> int:
        time_ns = self._kind.clock(text)
        if time_ns is None:
            problem = f"is not {self._kind.time_like}"
            raise MalformedLineError(number, self._columns[0], text, problem)
        return time_ns

    def _find(self, number: int, header: str, known: Sequence[str]) -> str:
        found = [name for name in self._names if name in known]
        if not found:
            problem = f"has no column {' or '.join(known)}: rename or add one"
            raise MalformedLineError(number, None, header, problem)
        name = min(found, key=known.index)
        if found.count(name) > 1:
            raise MalformedLineError(number, name, header, "has this column twice")
        return name


def csv_values(number: int, line: str) -> list[str]:
    """A line's values, without the spaces around them. Raises MalformedLineError."""
    try:
        return [
            value.strip()
            for value in next(csv.reader([line], skipinitialspace=True, strict=True), [""])
        ]
    except csv.Error as error:
        raise MalformedLineError(number, None, line, f"is not a line of CSV ({error})") from None
