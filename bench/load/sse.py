"""Server-sent events out of bytes as they arrive, by the WHATWG specification (HTML, 9.2.6).

Does no I/O, so that every client here reads streams in one way.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")
RETRY_DIGITS = 15
"""More are a mistake of the server's, and past what a number here may have."""
_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event: its data lines joined by newlines, its type, and the last id seen until then."""

    data: str
    event: str = "message"
    id: str = ""


class SseParser:
    """Feed it what was read, in any pieces. An event that the stream's end cuts off is dropped.

    `retry_ms` is the reconnection time that the server asked for, if it did.
    """

    def __init__(self) -> None:
        self.retry_ms: int | None = None
        self._rest = bytearray()
        self._first_line = True
        self._skip_newline = False
        self._data: list[str] = []
        self._event = ""
        self._id = ""

    def feed(self, piece: bytes) -> list[Event]:
        """The events that this piece completes."""
        if self._skip_newline and piece:  # the second half of a CRLF cut in two
            piece = piece.removeprefix(b"\n")
            self._skip_newline = False
        self._rest += piece
        if b"\n" not in piece and b"\r" not in piece:
            return []
        self._skip_newline = piece.endswith(b"\r")
        *lines, rest = _LINE_END.split(bytes(self._rest))
        self._rest = bytearray(rest)
        return [event for line in lines if (event := self._take_line(line)) is not None]

    def _take_line(self, line: bytes) -> Event | None:
        if self._first_line:
            line = line.removeprefix(_BOM)
            self._first_line = False
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        if name:  # else a comment
            self._take_field(name, value.removeprefix(b" ").decode(errors="replace"))
        return None

    def _take_field(self, name: bytes, value: str) -> None:
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._event = value
            case b"id" if "\0" not in value:
                self._id = value
            case b"retry" if value.isascii() and value.isdigit() and len(value) <= RETRY_DIGITS:
                self.retry_ms = int(value)
            case _:
                pass  # by the specification

    def _dispatch(self) -> Event | None:
        data, event = self._data, self._event
        self._data, self._event = [], ""
        return Event("\n".join(data), event or "message", self._id) if data else None
