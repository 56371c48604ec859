"""Text to token ids and back: bytes, or a checkpoint's own tokenizer (checkpoint_tokenizer.py)."""

from __future__ import annotations

import codecs
import json
import re
from pathlib import Path
from typing import Protocol

from bench.errors import SettingError
from bench.serve.checkpoint_tokenizer import CheckpointTokenizer

TOKENIZER_FILE = "tokenizer.json"
BYTES = 256
_STAND_IN = re.compile(r"<\|([1-9][0-9]{2,8})\|>")


class Decoder(Protocol):
    """The text of one answer, token by token."""

    def push(self, token_id: int) -> str:
        """The text that this token completes; a character that is cut in two waits for its rest."""

    def flush(self) -> str:
        """What is left, cut characters as U+FFFD."""


class Tokenizer(Protocol):
    """Text to token ids and back. `most_characters` are in a token, None where it is not known."""

    most_characters: int | None

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt."""

    def decoder(self) -> Decoder:
        """For a new answer."""


class ByteTokenizer:
    """A token a byte of UTF-8: ids 0 to 255.

    Ids from 256 up, which a model's vocabulary has, read and write as `<|300|>`, so that an answer
    that is sent back is as many tokens as it was, unless some of its bytes were no UTF-8.
    """

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self.most_characters: int | None = len(f"<|{vocab_size - 1}|>")

    def encode(self, text: str) -> list[int]:
        """Raises UnicodeEncodeError for half a surrogate pair."""
        ids: list[int] = []
        start = 0
        for match in _STAND_IN.finditer(text):
            if BYTES <= int(match[1]) < self._vocab_size:
                ids += text[start : match.start()].encode()
                ids.append(int(match[1]))
                start = match.end()
        ids += text[start:].encode()
        return ids

    def decoder(self) -> Decoder:
        """For a new answer."""
        return _ByteDecoder()


class _ByteDecoder:
    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        if token_id < BYTES:
            return self._utf8.decode(bytes((token_id,)))
        return f"{self.flush()}<|{token_id}|>"

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


def make_tokenizer(setting: str, checkpoint: str | None, vocab_size: int) -> Tokenizer:
    """What serve.tokenizer asks for: "bytes", a tokenizer.json or the folder of one, or "auto",
    the checkpoint's own if it has one. Raises SettingError."""
    if setting == "bytes":
        return ByteTokenizer(vocab_size)
    if setting == "auto":
        own = Path(checkpoint).expanduser() / TOKENIZER_FILE if checkpoint else None
        if own is None or not own.exists():
            return ByteTokenizer(vocab_size)
        return CheckpointTokenizer(own)
    path = Path(setting).expanduser()
    return CheckpointTokenizer(path / TOKENIZER_FILE if path.is_dir() else path)


def end_of_sequence_ids(checkpoint: str | None) -> frozenset[int]:
    """Ids of eos_token_id in a checkpoint's config.json and generation_config.json: one, several
    or none. Raises SettingError."""
    if checkpoint is None:
        return frozenset()
    ids: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        path = Path(checkpoint).expanduser() / name
        if path.exists():
            ids |= _eos_of(path)
    return frozenset(ids)


def _eos_of(path: Path) -> set[int]:
    try:
        given = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
        return set() if given is None else {int(each) for each in _listed(given)}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise SettingError(f"{path} cannot be read: {error}; fetch it again.") from error


def _listed(value: object) -> list[int]:
    return value if isinstance(value, list) else [value]  # type: ignore[list-item]
