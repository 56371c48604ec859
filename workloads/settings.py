"""Checks of settings. Hydra does not check types, so every constructor does, with these."""

from __future__ import annotations

from typing import Any

from workloads.base import WorkloadError


def refusal(setting: str, value: object, allowed: str, fix: str) -> WorkloadError:
    """The error for a setting that cannot be used: its name, its value, what is allowed, a fix."""
    shown = "null" if value is None else repr(value)
    return WorkloadError(f"{setting} is {shown}; it must be {allowed}; {fix}.")


def number(setting: str, value: Any, least: float, most: float, unit: str, fix: str) -> float:
    """`value` as a float, or WorkloadError unless it is a number in [least, most]."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:  # NaN is in no range
        raise refusal(setting, value, f"a number from {least:,.12g} to {most:,.12g} {unit}", fix)
    return float(value)


def count(setting: str, value: Any, least: int, most: int, unit: str, fix: str) -> int:
    """`value`, or WorkloadError unless it is a whole number in [least, most]."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise refusal(setting, value, f"a whole number from {least:,} to {most:,} {unit}", fix)
    return value


def text(setting: str, value: Any, allowed: str, fix: str) -> str:
    """`value`, or WorkloadError unless it is text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise refusal(setting, value, allowed, fix)
    return value


MAX_TOKENS = 2**31 - 1
MAX_REQUESTS = 2**53
MAX_DURATION_S = 1e8
MIN_RATE_RPS, MAX_RATE_RPS = 1e-4, 1e6


def optional_rate_rps(setting: str, value: Any) -> float | None:
    """A mean rate in requests/s, or None where the setting is null."""
    if value is None:
        return None
    fix = "give a rate such as 5, or null for the arrivals' own rate"
    return number(setting, value, MIN_RATE_RPS, MAX_RATE_RPS, "requests/s", fix)


def optional_requests(setting: str, value: Any) -> int | None:
    """A number of requests, or None where the setting is null."""
    if value is None:
        return None
    return count(setting, value, 1, MAX_REQUESTS, "requests", "leave it null for no limit")


def optional_duration_s(setting: str, value: Any) -> float | None:
    """A length of time in seconds, or None where the setting is null."""
    if value is None:
        return None
    fix = "leave it null for no limit"
    return number(setting, value, 1e-6, MAX_DURATION_S, "seconds", fix)
