"""Numbers and errors as plans and incident reports say them; what is undefined is a dash."""

from __future__ import annotations

UNDEFINED = "-"
MIB, GIB = 1 << 20, 1 << 30


def mib(nbytes: float | None) -> str:
    """Bytes in MiB."""
    return UNDEFINED if nbytes is None else f"{nbytes / MIB:,.1f} MiB"


def gib(nbytes: float | None) -> str:
    """Bytes in GiB, without the unit."""
    return UNDEFINED if nbytes is None else f"{nbytes / GIB:,.2f}"


def whole(value: float | None) -> str:
    """A number without its fraction."""
    return UNDEFINED if value is None else f"{value:,.0f}"


def percent(value: float | None) -> str:
    """A share from 0 to 1."""
    return UNDEFINED if value is None else f"{100 * value:.1f} %"


def seconds(value: float | None) -> str:
    """Seconds of the run's clock."""
    return UNDEFINED if value is None else f"{value:,.1f} s"


def share(part: float | None, whole: float | None) -> float | None:
    """part / whole; None where that is undefined."""
    return None if part is None or not whole else part / whole


def first_sentences(error: str) -> str:
    """What PyTorch wanted and what was free, without the advice that follows."""
    told = error.split(" If reserved but")[0].split("  See documentation")[0]
    return told.strip()
