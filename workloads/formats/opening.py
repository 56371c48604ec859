"""Text files as they come: plain or compressed, with whatever line ends they have."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TextIO, cast

import pyarrow as pa

from workloads.base import WorkloadError
from workloads.formats.base import Line, MalformedLineError

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
FIRST_LINE_CHARACTERS = 1 << 20
_BLOCK_CHARACTERS = 1 << 16
_LINE_CHARACTERS = 1 << 24


def compression(path: Path) -> str | None:
    """`gzip` or `zstd`, told from the file's first bytes whatever its name; None for neither.
    Raises OSError."""
    with path.open("rb") as file:
        start = file.read(4)
    return next((name for magic, name in _MAGIC.items() if start.startswith(magic)), None)


def open_text(path: Path) -> TextIO:
    """The file's text, unpacked as it is read; a byte-order mark is no part of it, and bytes that
    are not UTF-8 read as \\xNN. Raises OSError, also later for a damaged or cut archive."""
    codec = compression(path)
    raw = path.open("rb") if codec is None else pa.CompressedInputStream(str(path), codec)
    binary = cast(io.BufferedReader, raw)  # a stream of pyarrow's has what TextIOWrapper calls
    return io.TextIOWrapper(binary, encoding="utf-8-sig", errors="backslashreplace")


def numbered_lines(path: Path) -> Iterator[Line]:
    """Numbered lines without their ends (LF, CRLF or CR), blank ones left out. Raises
    MalformedLineError for one that is far too long, and OSError."""
    with open_text(path) as file:
        for number, line in enumerate(iter(partial(file.readline, _LINE_CHARACTERS), ""), 1):
            if stripped := _checked(number, line).strip():
                yield number, stripped


def text_blocks(path: Path, after: int) -> Iterator[Line]:
    """The text after so many lines, in blocks of whole lines (LF ends), each with the number of its
    first one. Raises OSError."""
    with open_text(path) as file:
        for _ in range(after):
            file.readline()
        number = after + 1
        while text := file.read(_BLOCK_CHARACTERS):
            text += _checked(number, file.readline(_LINE_CHARACTERS))
            yield number, text
            number += text.count("\n")


def first_line(path: Path) -> str:
    """The first line that is not blank, from the text's first MiB; an empty file is an error."""
    with reading(path), open_text(path) as file:
        start = file.read(FIRST_LINE_CHARACTERS).strip()
    if not start:
        raise WorkloadError(f"{path}: the file is empty; give one that has requests.")
    return start.split("\n", 1)[0].rstrip()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Makes what goes wrong while a file is read a WorkloadError of one sentence."""
    try:
        yield
    except MalformedLineError as error:
        raise WorkloadError(f"{path}, {error}.") from None
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error).split("\n", 1)[0]
        raise WorkloadError(f"{path} cannot be read: {reason.rstrip('.')}.") from None


def _checked(number: int, line: str) -> str:
    if len(line) >= _LINE_CHARACTERS:
        problem = f"is longer than {_LINE_CHARACTERS >> 20} MiB, which no request is"
        raise MalformedLineError(number, None, line, problem)
    return line
