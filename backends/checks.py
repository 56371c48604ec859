"""Checks of backend settings: Hydra passes on whatever a user wrote."""

from __future__ import annotations

from backends.base import BackendError


def one_of(setting: str, value: object, allowed: tuple[str, ...]) -> str:
    """The value when it is allowed. Raises BackendError."""
    if isinstance(value, str) and value in allowed:
        return value
    raise BackendError(f"{setting}={value!r} is not known: choose one of {', '.join(allowed)}")


def integer(setting: str, value: object, low: int, high: int, unit: str) -> int:
    """The value when it is a whole number in [low, high]. Raises BackendError."""
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    raise BackendError(
        f"{setting}={value!r} is out of range: give a whole number of {unit} from {low} to {high}"
    )
