"""Numbers of a plan as text."""

from __future__ import annotations

from typing import Any

from bench.gpu import GIB

UNKNOWN = "-"


def tokens(each: dict[str, Any]) -> str:
    """Live tokens of a division, or that there is none."""
    return "does not fit" if each["refused"] else whole(each["live_tokens"])


def gib(nbytes: float | None) -> str:
    """Bytes in GiB."""
    return UNKNOWN if nbytes is None else f"{nbytes / GIB:,.2f}"


def whole(number: float | None) -> str:
    """A number without its fraction."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def percent(share: float | None) -> str:
    """A share in percent."""
    return UNKNOWN if share is None else f"{100 * share:.1f} %"
