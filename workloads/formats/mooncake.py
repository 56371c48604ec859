"""The Mooncake traces of 2025.

Source: kvcache-ai/Mooncake, `FAST25-release/traces/*.jsonl` (Qin et al., Mooncake, FAST 2025): one
JSON object a line. Requests share what their `hash_ids` share: one id for each block of 512 prompt
tokens, the last block partial.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from workloads.formats.base import Line, MalformedLineError, TraceRow, token_count

_BLOCK_TOKENS = 512
_REQUIRED = ("timestamp", "input_length", "output_length")
_MAX_TIMESTAMP_MS = 1e15
_MAX_ID = 2**63 - 1


class MooncakeFormat:
    """JSONL with timestamp (ms), input_length, output_length and, at will, hash_ids.

    A line without hash_ids, or with fewer than its blocks, has a prompt of its own from there on.
    """

    name = "mooncake"
    expects = f"a JSON object with {', '.join(_REQUIRED)}"

    def recognises(self, first_line: str) -> bool:
        try:
            record = json.loads(first_line)
        except (ValueError, RecursionError):
            return False
        return isinstance(record, dict) and all(name in record for name in _REQUIRED)

    def rows(self, lines: Iterable[Line]) -> Iterator[TraceRow]:
        for number, line in lines:
            yield _parse(number, line)


def _parse(number: int, line: str) -> TraceRow:
    record = _record(number, line)
    time_ns = _time_ns(number, record["timestamp"])
    prompt_tokens = token_count(number, "input_length", record["input_length"])
    output_tokens = token_count(number, "output_length", record["output_length"])
    ids = _ids(number, record.get("hash_ids", []), prompt_tokens)
    return TraceRow(number, time_ns, prompt_tokens, output_tokens, ids, _BLOCK_TOKENS if ids else 0)


def _record(number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MalformedLineError(number, None, line, f"is not JSON ({error})") from None
    if not isinstance(record, dict):
        raise MalformedLineError(number, None, line, "is not a JSON object")
    for name in _REQUIRED:
        if name not in record:
            raise MalformedLineError(number, name, line, "lacks this column")
    return record


def _time_ns(number: int, value: Any) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and 0 <= value <= _MAX_TIMESTAMP_MS:  # NaN is in no range
        nanoseconds: int | float = value * 1_000_000
        return round(nanoseconds)
    problem = f"is not a number of milliseconds from 0 to {_MAX_TIMESTAMP_MS:g}"
    raise MalformedLineError(number, "timestamp", value, problem)


def _ids(number: int, value: Any, prompt_tokens: int) -> tuple[int, ...]:
    blocks = -(-prompt_tokens // _BLOCK_TOKENS)
    if not isinstance(value, list):
        raise MalformedLineError(number, "hash_ids", value, "is not a list of block ids")
    if len(value) > blocks:
        problem = f"has {len(value)} ids for {prompt_tokens} tokens, {blocks} blocks of 512"
        raise MalformedLineError(number, "hash_ids", value, problem)
    for block_id in value:
        if type(block_id) is not int or not 0 <= block_id <= _MAX_ID:
            problem = "is not a whole number from 0 to 2^63 - 1"
            raise MalformedLineError(number, "hash_ids", block_id, problem)
    return tuple(value)
