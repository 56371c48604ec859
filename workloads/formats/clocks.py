"""Times as traces write them, read as whole nanoseconds: exactly, never by way of a float."""

from __future__ import annotations

import re
from datetime import datetime
from fractions import Fraction
from functools import lru_cache

_NS_PER_S = 1_000_000_000
_SAFE_DIGITS = 15
_END_NS = 10**_SAFE_DIGITS * _NS_PER_S
_PLAIN = re.compile(r"(\d{1,15})(?:\.(\d{0,9}))?", re.ASCII)
_ANY = re.compile(r"\d{1,15}(?:\.\d{0,40})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_WALL_CLOCK = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d):([0-5]\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:[0-5]\d)?", re.ASCII
)


def seconds(text: str) -> int | None:
    """Seconds, such as `7564.0`, `0.052` or `1e-05`, as ns, below 10^15 s; None for anything
    else. What is below a nanosecond is rounded."""
    plain = text.removesuffix(".0")
    if len(plain) <= _SAFE_DIGITS and plain.isascii() and plain.isdecimal():
        return int(plain) * _NS_PER_S
    match = _PLAIN.fullmatch(text)
    if match is not None:
        whole, fraction = match.groups()
        return int(whole) * _NS_PER_S + (int(fraction.ljust(9, "0")) if fraction else 0)
    time_ns = round(Fraction(text) * _NS_PER_S) if _ANY.fullmatch(text) else _END_NS
    return time_ns if time_ns < _END_NS else None


def wall_clock(text: str) -> int | None:
    """A date and time, with or without an offset from UTC, as ns since year 1 (of UTC, or of
    whatever the clock showed); None for what is none."""
    match = _WALL_CLOCK.fullmatch(text)
    if match is None:
        return None
    minute, second, fraction, offset = match.groups()
    try:
        whole_s = _minute_s(minute, offset) + int(second)
    except ValueError:
        return None
    return whole_s * _NS_PER_S + (int(fraction.ljust(9, "0")) if fraction else 0)


@lru_cache(maxsize=256)
def _minute_s(minute: str, offset: str | None) -> int:
    """Seconds from year 1 to the start of a minute. Raises ValueError for a date that is none."""
    moment = datetime.fromisoformat(minute)
    minutes = moment.toordinal() * 1440 + moment.hour * 60 + moment.minute
    if offset and offset != "Z":
        east = int(offset[1:3]) * 60 + int(offset[4:])
        minutes += -east if offset[0] == "+" else east
    return minutes * 60
