"""A JSON list read item by item: ShareGPT's file is 640 MB, more than twice that as objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from workloads.formats.base import MalformedLineError
from workloads.formats.opening import open_text

_PIECE_CHARACTERS = 1 << 20
_ITEM_CHARACTERS = 1 << 24
_LONGEST_WORD = 32
"""Characters of what is not understood before it is whole: `false`, an escape, a number's sign."""
_SPACE = re.compile(r"\s*")


def list_items(path: Path) -> Iterator[tuple[int, Any]]:
    """The items of the list that the file holds, each with the number of the line it starts in.

    Raises MalformedLineError for what is no JSON list, and OSError.
    """
    with open_text(path) as file:
        text = _Text(file)
        text.expect("[", "is not the start of a JSON list")
        while text.peek() != "]":
            yield text.line, text.decode()
            if text.peek() != "]":
                text.expect(",", "is neither a comma nor the end of the list")
                text.expect_item()
        text.expect("]", "")
        text.expect("", "comes after the end of the list")


class _Text:
    """A file's text from where the reader is, a piece at a time. `line` is the line of that place
    once `peek` has been called."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._buffer, self._at, self.line = "", 0, 1
        self._decoder = json.JSONDecoder()

    def peek(self) -> str:
        """The next character that is not white space, '' at the end of the file."""
        while True:
            space = _SPACE.match(self._buffer, self._at)
            self._move(space.end() if space else self._at)
            character = self._buffer[self._at : self._at + 1]
            if character or not self._more(_PIECE_CHARACTERS):
                return character

    def expect(self, character: str, problem: str) -> None:
        if self.peek() != character:
            raise self._error(problem)
        self._move(self._at + len(character))

    def expect_item(self) -> None:
        """Raises MalformedLineError where the list ends."""
        if self.peek() == "]":
            raise self._error("ends the list after a comma")

    def decode(self) -> Any:
        """The JSON value here; reads on, twice as much each time, until it is whole."""
        piece = _PIECE_CHARACTERS
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as error:
                if not self._may_go_on(error):
                    raise self._error(f"is not JSON ({error.msg})") from None
                if not self._more(piece):
                    raise self._error("does not start a whole JSON value") from None
                piece *= 2
            except (ValueError, RecursionError) as error:
                raise self._error(f"is not JSON ({error})") from None
            else:
                self._move(end)
                return value

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        """Whether what is wrong with the value may be that the rest of it is still to be read."""
        if len(self._buffer) - self._at > _ITEM_CHARACTERS:
            raise self._error(f"is longer than {_ITEM_CHARACTERS >> 20} MiB, which no request is")
        in_text = error.msg.startswith("Unterminated string")
        return in_text or error.pos > len(self._buffer) - _LONGEST_WORD

    def _more(self, characters: int) -> bool:
        piece = self._file.read(characters)
        self._buffer, self._at = self._buffer[self._at :] + piece, 0
        return bool(piece)

    def _move(self, to: int) -> None:
        self.line += self._buffer.count("\n", self._at, to)
        self._at = to

    def _error(self, problem: str) -> MalformedLineError:
        return MalformedLineError(self.line, None, self._buffer[self._at : self._at + 60], problem)
