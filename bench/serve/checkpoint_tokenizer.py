"""A checkpoint's own tokenizer, from its tokenizer.json, by the package tokenizers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.errors import SettingError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_CUT = "\ufffd"
_MOST_CUT = 4  # bytes of a character; more tokens than that are no character


class CheckpointTokenizer:
    """Prompts get the special tokens that the file says (such as a first <s>); answers are shown
    without special tokens. Raises SettingError."""

    most_characters: int | None = None  # some are dropped before the text is cut into tokens

    def __init__(self, path: Path) -> None:
        self._tokenizer = _load(path)

    def encode(self, text: str) -> list[int]:
        """Token ids of a prompt."""
        return list(self._tokenizer.encode(text).ids)

    def decoder(self) -> CheckpointDecoder:
        """For a new answer."""
        return CheckpointDecoder(self._tokenizer)


class CheckpointDecoder:
    """The text of one answer, token by token.

    A token's text depends on its neighbours (spaces, characters cut in two), so a window of tokens
    is decoded with and without the new ones; it moves on when the difference is whole characters.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._said = 0  # tokens at the window's start whose text was given

    def push(self, token_id: int) -> str:
        """The text that this token completes."""
        self._window.append(token_id)
        new = self._new()
        waits = len(self._window) - self._said < _MOST_CUT
        if waits and (not new or new.endswith(_CUT)):
            return ""
        self._move_on()
        return new

    def flush(self) -> str:
        """What is left."""
        new = self._new()
        self._move_on()
        return new

    def _new(self) -> str:
        before = self._tokenizer.decode(self._window[: self._said])
        return self._tokenizer.decode(self._window)[len(before) :]

    def _move_on(self) -> None:
        self._window = self._window[self._said :]
        self._said = len(self._window)


def _load(path: Path) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise SettingError(
            f"{path} needs the package tokenizers, which is not installed: "
            "`pip install tokenizers`, or take serve.tokenizer=bytes."
        ) from error
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises no narrower one
        raise SettingError(
            f"serve.tokenizer={path} cannot be read: {error}; give a tokenizer.json, the folder of "
            "one, or bytes."
        ) from error
