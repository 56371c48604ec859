"""Azure's public LLM inference traces of 2023.

Source: AzurePublicDataset, `AzureLLMInferenceTrace_{code,conv}.csv` (Patel et al., Splitwise, ISCA
2024): a header, then a line a request with its wall-clock arrival and its two lengths in tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import lru_cache

from workloads.formats.base import Line, MalformedLineError, TraceRow, token_count

_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_TIMESTAMP = r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d):([0-5]\d)(?:\.(\d{1,9}))?"
_TIME = re.compile(_TIMESTAMP, re.ASCII)
_ROW = re.compile(rf"{_TIMESTAMP},(\d{{1,9}}),(\d{{1,9}})", re.ASCII)
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,18}", re.ASCII)


class AzureFormat:
    """CSV with the columns TIMESTAMP, ContextTokens, GeneratedTokens.

    The times have 7 fractional digits: they become whole nanoseconds, never floats.
    """

    name = "azure"
    expects = f"the header {','.join(_COLUMNS)}"

    def recognises(self, first_line: str) -> bool:
        return first_line.strip() == ",".join(_COLUMNS)

    def rows(self, lines: Iterable[Line]) -> Iterator[TraceRow]:
        numbered = iter(lines)
        for number, header in numbered:
            if not self.recognises(header):
                raise MalformedLineError(number, None, header, f"is not {self.expects}")
            break
        for number, line in numbered:
            yield _parse(number, line)


def _parse(number: int, line: str) -> TraceRow:
    match = _ROW.fullmatch(line)
    if match is None:
        return _parse_slowly(number, line)
    minute, second, fraction, prompt, output = match.groups()
    prompt_tokens, output_tokens = int(prompt), int(output)
    if prompt_tokens < 1 or output_tokens < 1:
        return _parse_slowly(number, line)
    return TraceRow(
        number, _time_ns(number, minute, second, fraction), prompt_tokens, output_tokens
    )


def _parse_slowly(number: int, line: str) -> TraceRow:
    """A line that the quick pattern refuses: spaces around a value are fine, the rest is named."""
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != len(_COLUMNS):
        problem = f"has {len(fields)} values; {len(_COLUMNS)} are expected: {', '.join(_COLUMNS)}"
        raise MalformedLineError(number, None, line, problem)
    match = _TIME.fullmatch(fields[0])
    if match is None:
        raise _bad_time(number, fields[0])
    time_ns = _time_ns(number, *match.groups())
    prompt_tokens, output_tokens = (
        token_count(number, column, int(field) if _WHOLE_NUMBER.fullmatch(field) else field)
        for column, field in zip(_COLUMNS[1:], fields[1:], strict=True)
    )
    return TraceRow(number, time_ns, prompt_tokens, output_tokens)


def _time_ns(number: int, minute: str, second: str, fraction: str | None) -> int:
    try:
        seconds = _minute_s(minute) + int(second)
    except ValueError:
        raise _bad_time(number, f"{minute}:{second}") from None
    return seconds * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


@lru_cache(maxsize=256)
def _minute_s(minute: str) -> int:
    """Seconds from year 1 to the start of a minute. Raises ValueError for a date that is none."""
    moment = datetime.fromisoformat(minute)
    return (moment.toordinal() * 1440 + moment.hour * 60 + moment.minute) * 60


def _bad_time(number: int, value: str) -> MalformedLineError:
    problem = "is not a time like 2023-11-16 18:15:46.6805900"
    return MalformedLineError(number, _COLUMNS[0], value, problem)
