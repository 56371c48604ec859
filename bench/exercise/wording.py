"""How findings say numbers."""

from __future__ import annotations

from collections.abc import Sequence

UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def amount(nbytes: float | None) -> str:
    """Bytes as people say them: three digits and a unit."""
    if nbytes is None:
        return "not known"
    for unit, size in UNITS:
        if abs(nbytes) >= size:
            return f"{digits(nbytes / size)} {unit}"
    return f"{nbytes:.0f} bytes"


def digits(value: float) -> str:
    """Three digits, all of those before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def listed(parts: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def counted(number: int, one: str) -> str:
    """A number with its noun."""
    return f"{number:,} {one}{'' if number == 1 else 's'}"
