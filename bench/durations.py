"""Lengths of time as people write them."""

from __future__ import annotations

import re

from bench.errors import SettingError

UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
MOST_S = 1e7
"""About four months."""


def seconds(setting: str, value: str) -> float:
    """Of "6h", "90m", "45s", "2d" or a plain number of seconds. Raises SettingError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", value.strip())
    found = float(match[1]) * UNITS_S[match[2]] if match else 0.0
    if 0 < found <= MOST_S:
        return found
    raise SettingError(
        f"{setting}={value} is no length of time: give a number above 0 with s, m, h or d, such as "
        f"{setting}=6h or {setting}=90m, at most {MOST_S / 86400:.0f}d."
    )


def spoken(length_s: float) -> str:
    """As people read it: "45 s", "12 min", "6.0 h"."""
    if length_s < 90:
        return f"{length_s:.0f} s"
    return f"{length_s / 60:.0f} min" if length_s < 5400 else f"{length_s / 3600:.1f} h"
