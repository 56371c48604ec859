"""Checks that sections of settings share. All raise SettingError."""

from __future__ import annotations

import math
from collections.abc import Collection

from bench.errors import SettingError


def choice(setting: str, value: str, allowed: Collection[str]) -> None:
    """Refuses what is not one of `allowed`."""
    if value not in allowed:
        raise SettingError(f"{setting}={value} is unknown: choose from {', '.join(allowed)}.")


def within(setting: str, value: float, least: float, most: float, unit: str) -> None:
    """Refuses a number that is not from `least` to `most`; NaN is in no range."""
    if not (least <= value <= most and math.isfinite(value)):
        raise SettingError(
            f"{setting}={value} is out of range: give a number from {least:,.12g} to "
            f"{most:,.12g} {unit}."
        )


def header_value(setting: str, value: str | None) -> None:
    """Refuses what no HTTP header can carry, without showing it: it is a secret."""
    if value and not (value.isascii() and value.isprintable() and value == value.strip()):
        raise SettingError(
            f"{setting} has a line break, a space at an end or a letter that is not ASCII, which "
            "no HTTP header can carry: give the key as the server has it."
        )
