"""Files of lengths: ShareGPT's conversations, tables with two columns, and traces.

ShareGPT is a JSON list of {"conversations": [{"from": "human", "value": "..."}, ...]}. As in
vLLM's benchmarks, a conversation's first two messages are prompt and output, whoever they are
from, and one with fewer than two is skipped. Its tokens are estimated: one for every 4 bytes of
UTF-8, rounded up, about what English text comes to; no tokenizer is needed. To count otherwise,
count beforehand and give a table.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from workloads.formats.base import MalformedLineError, token_count
from workloads.formats.json_list import list_items
from workloads.formats.registry import FORMATS, by_name, recognise
from workloads.trace_file import first_line, numbered_lines

_BYTES_PER_TOKEN = 4
PROMPT_COLUMNS = ("prompt_tokens", "prompt_len", "input_tokens", "input_length", "ContextTokens")
OUTPUT_COLUMNS = ("output_tokens", "output_len", "output_length", "GeneratedTokens")
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,18}", re.ASCII)


class Pair(NamedTuple):
    prompt_tokens: int
    output_tokens: int


def formats() -> list[str]:
    """The values of the setting `format`, auto aside."""
    return [*_READERS, *(known.name for known in FORMATS)]


def read_pairs(path: Path, format_name: str) -> Iterator[Pair]:
    """The file's pairs in its order, read as it goes; a ShareGPT message without text counts 0.

    Raises MalformedLineError, WorkloadError for an empty file, and OSError.
    """
    chosen = _recognise(first_line(path)) if format_name == "auto" else format_name
    if chosen in _READERS:
        yield from _READERS[chosen](path)
        return
    for row in by_name(chosen).rows(numbered_lines(path)):
        yield Pair(row.prompt_tokens, row.output_tokens)


def _recognise(line: str) -> str:
    trace = recognise(line)
    if trace is not None:
        return trace.name
    return {"[": "sharegpt", "{": "jsonl"}.get(line[0], "csv")


def _sharegpt(path: Path) -> Iterator[Pair]:
    for line, item in list_items(path):
        messages = item.get("conversations") if isinstance(item, dict) else None
        if not isinstance(messages, list):
            raise MalformedLineError(line, "conversations", item, "is not a list of messages")
        if len(messages) >= 2:
            yield Pair(*(_estimate(line, message) for message in messages[:2]))


def _estimate(line: int, message: Any) -> int:
    value = message.get("value") if isinstance(message, dict) else None
    if not isinstance(value, str):
        raise MalformedLineError(line, "value", message, "is not a message with text")
    return -(-len(value.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


def _csv(path: Path) -> Iterator[Pair]:
    lines = numbered_lines(path)
    for number, header in lines:
        names = _values(number, header)
        prompt, output = _columns(number, names)
        break
    for number, line in lines:
        values = _values(number, line)
        if len(values) != len(names):
            problem = f"has {len(values)} values; {len(names)} are expected: {', '.join(names)}"
            raise MalformedLineError(number, None, line, problem)
        yield _pair(number, dict(zip(names, values, strict=True)), prompt, output)


def _values(number: int, line: str) -> list[str]:
    try:
        return [value.strip() for value in next(csv.reader([line]))]
    except csv.Error as error:
        raise MalformedLineError(number, None, line, f"is not CSV ({error})") from None


def _jsonl(path: Path) -> Iterator[Pair]:
    for number, line in numbered_lines(path):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise MalformedLineError(number, None, line, f"is not JSON ({error})") from None
        if not isinstance(record, dict):
            raise MalformedLineError(number, None, line, "is not a JSON object")
        yield _pair(number, record, *_columns(number, list(record)))


def _columns(line: int, names: list[str]) -> tuple[str, str]:
    """The names of the two columns. Raises MalformedLineError where one is missing."""
    found = []
    for known in (PROMPT_COLUMNS, OUTPUT_COLUMNS):
        name = next((name for name in known if name in names), None)
        if name is None:
            problem = f"has none of the columns {', '.join(known)}: rename or add one"
            raise MalformedLineError(line, None, ",".join(names), problem)
        found.append(name)
    return found[0], found[1]


def _pair(line: int, record: Mapping[str, Any], prompt: str, output: str) -> Pair:
    return Pair(*(token_count(line, name, _whole(record[name])) for name in (prompt, output)))


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value) else value


_READERS: dict[str, Callable[[Path], Iterator[Pair]]] = {
    "sharegpt": _sharegpt,
    "csv": _csv,
    "jsonl": _jsonl,
}
