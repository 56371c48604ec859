"""The formats that a trace can have, and how a file's format is found."""

from __future__ import annotations

from workloads.formats.azure import AzureFormat
from workloads.formats.base import TraceFormat
from workloads.formats.mooncake import MooncakeFormat

FORMATS: tuple[TraceFormat, ...] = (AzureFormat(), MooncakeFormat())
"""To add a format: one file beside this one, and one entry here."""


def names() -> list[str]:
    """The values of the setting `format`, `auto` first."""
    return ["auto", *(known.name for known in FORMATS)]


def by_name(name: str) -> TraceFormat:
    """The format of that name, which must be one of `names()` other than `auto`."""
    return next(known for known in FORMATS if known.name == name)


def recognise(first_line: str) -> TraceFormat | None:
    """The format of a file that starts with this line, or None."""
    return next((known for known in FORMATS if known.recognises(first_line)), None)
