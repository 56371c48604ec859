"""Prompts and answers as texts: ShareGPT's conversations, and prompts of vLLM's custom data set.

ShareGPT is a JSON list of {"conversations": [{"from": "human", "value": "..."}, ...]}; SGLang's
custom data set has such an object a line, whose messages may have `content` in place of `value`. As
in vLLM's and SGLang's benchmarks, a conversation's first two messages are prompt and output,
whoever they are from; one that lacks either, or its text, is no request.

vLLM's custom data set has {"prompt": "...", "output_tokens": 20} a line (vllm/benchmarks/datasets,
pull request 31881); the output's length may be missing. Where a prompt's length is given as well,
it is taken.

Tokens of a text are estimated: one for every 4 bytes of UTF-8, rounded up, about what English text
comes to; no tokenizer is needed. To count otherwise, count beforehand and give a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from workloads.formats.base import MalformedLineError, Tally, TraceRow, rows_of, token_count
from workloads.formats.json_lines import checked_object, json_object, length
from workloads.formats.json_list import list_items
from workloads.formats.opening import first_line, numbered_lines

_BYTES_PER_TOKEN = 4
_CONVERSATION = ("conversations", "conversation")
_MESSAGE = ("value", "content")
_SILENCE = {"value": ""}
_PROMPT = ("prompt_tokens", "prompt_len")
_OUTPUT = ("output_tokens", "output_len")


class ShareGptFormat:
    """Conversations, in a list or one a line."""

    name = "sharegpt"
    expects = "a JSON list, or a JSON object a line, of conversations"
    time = None
    estimates_tokens = True

    def recognises(self, first_line: str) -> bool:
        if first_line.startswith("["):
            return True
        record = json_object(first_line)
        return record is not None and any(key in record for key in _CONVERSATION)

    def rows(self, path: Path, tally: Tally) -> Iterator[TraceRow]:
        if first_line(path).startswith("["):
            return rows_of(list_items(path), partial(_conversation, tally), tally)
        return rows_of(numbered_lines(path), partial(_conversation_line, tally), tally)


class VllmFormat:
    """Prompts, and the lengths of outputs where they are known."""

    name = "vllm"
    expects = "a JSON object with prompt"
    time = None
    estimates_tokens = True

    def recognises(self, first_line: str) -> bool:
        record = json_object(first_line)
        return record is not None and isinstance(record.get("prompt"), str)

    def rows(self, path: Path, tally: Tally) -> Iterator[TraceRow]:
        return rows_of(numbered_lines(path), partial(_prompt, tally), tally)


def _conversation_line(tally: Tally, number: int, line: str) -> TraceRow | None:
    return _conversation(tally, number, checked_object(number, line))


def _conversation(tally: Tally, number: int, item: Any) -> TraceRow | None:
    record = item if isinstance(item, dict) else {}
    messages = next((record[key] for key in _CONVERSATION if key in record), None)
    if not isinstance(messages, list):
        raise MalformedLineError(number, "conversations", item, "is not a list of messages")
    prompt, output = (
        _estimate(number, "value", _text(message)) for message in (messages + [_SILENCE] * 2)[:2]
    )
    if not (prompt and output):
        tally.silent += 1
        return None
    return TraceRow(number, 0, prompt, output)


def _text(message: Any) -> Any:
    record = message if isinstance(message, dict) else {}
    return next((record[key] for key in _MESSAGE if key in record), message)


def _prompt(tally: Tally, number: int, line: str) -> TraceRow:
    record = checked_object(number, line)
    if any(name in record for name in _PROMPT):
        prompt_tokens = length(number, line, record, _PROMPT)
    else:
        estimate = _estimate(number, "prompt", record.get("prompt"))
        prompt_tokens = token_count(number, "prompt", estimate)
    output_tokens = tally.output_tokens
    if output_tokens is None or any(name in record for name in _OUTPUT):
        output_tokens = length(number, line, record, _OUTPUT)
    return TraceRow(number, 0, prompt_tokens, output_tokens)


def _estimate(number: int, column: str, text: Any) -> int:
    if not isinstance(text, str):
        raise MalformedLineError(number, column, text, "is not a text")
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)
