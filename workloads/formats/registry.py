"""The formats that a trace can have, and how a file's format is found."""

from __future__ import annotations

from pathlib import Path

from workloads.base import WorkloadError
from workloads.formats.azure import AZURE
from workloads.formats.bailian import BAILIAN
from workloads.formats.base import TraceFormat
from workloads.formats.burstgpt import BURSTGPT
from workloads.formats.lengths import CSV, JSONL
from workloads.formats.llmservingsim import LLMSERVINGSIM
from workloads.formats.mooncake import MOONCAKE
from workloads.formats.opening import FIRST_LINE_CHARACTERS, first_line
from workloads.formats.own_run import RunFormat
from workloads.formats.splitwise import SPLITWISE
from workloads.formats.texts import ShareGptFormat, VllmFormat
from workloads.formats.vidur import VIDUR
from workloads.settings import refusal

_OF_TABLES: tuple[TraceFormat, ...] = (AZURE, BURSTGPT, VIDUR, SPLITWISE)
_OF_JSON: tuple[TraceFormat, ...] = (
    *(MOONCAKE, BAILIAN, LLMSERVINGSIM, VllmFormat()),
    ShareGptFormat(),
)
_OF_LENGTHS: tuple[TraceFormat, ...] = (CSV, JSONL)
"""Any file that one of the others recognises is that one's."""
FORMATS: tuple[TraceFormat, ...] = (*_OF_TABLES, *_OF_JSON, RunFormat(), *_OF_LENGTHS)
"""To add a format: one file beside this one, and one entry here."""


def names() -> list[str]:
    """The values of the setting `format`, `auto` first."""
    return ["auto", *(known.name for known in FORMATS)]


def choose(setting: str, name: object, path: Path) -> TraceFormat:
    """The format that `name` names; for `auto`, the one that recognises the file by its start.

    Raises WorkloadError for a name that is none, and for a file that no format recognises, or more
    than one: units and columns are never guessed.
    """
    chosen = next((known for known in FORMATS if known.name == name), None)
    if chosen is not None:
        return chosen
    if name != "auto":
        fix = "auto recognises it by the file's start"
        raise refusal(setting, name, f"one of {', '.join(names())}", fix)
    line = "PAR1" if path.is_dir() else first_line(path)
    found = recognise(line)
    if len(found) == 1:
        return found[0]
    if not found:
        raise WorkloadError(_unknown(setting, path, line))
    both = " and ".join(known.name for known in found)
    raise WorkloadError(
        f"{path}: its first line {line[:60]!r} is of the formats {both}; "
        f"say which it is with {setting}={found[0].name}."
    )


def recognise(line: str) -> list[TraceFormat]:
    """The formats of a file that starts with this line: none, one, or several that fit alike."""
    traces = [known for known in FORMATS if known not in _OF_LENGTHS and known.recognises(line)]
    return traces or [known for known in _OF_LENGTHS if known.recognises(line)]


def _unknown(setting: str, path: Path, line: str) -> str:
    if "\0" in line or "\\x" in line[:60]:
        return f"{path}: it is neither text in UTF-8 nor packed by gzip or zstd; convert the file."
    if len(line) >= FIRST_LINE_CHARACTERS:
        return f"{path}: its first line is too long to tell the format by; name it with {setting}."
    like_it = (*_OF_JSON, JSONL) if line[0] in "{[" else (*_OF_TABLES, CSV)
    known = "; ".join(f"{each.name}: {each.expects}" for each in like_it)
    return (
        f"{path}: the format is not known from its first line {line[:60]!r} ({known}); "
        f"convert the file, or name its format with {setting}."
    )
