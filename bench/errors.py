"""Errors that are a user's to mend: one clear sentence and exit code 2, never a stack trace."""

from __future__ import annotations


class SettingError(ValueError):
    """A setting that cannot be used. The message names the setting, the value received, what is
    allowed and the likely fix."""


USER_ERRORS = (
    "bench.errors:SettingError",
    "workloads.base:WorkloadError",
    "backends.base:BackendError",
)
"""By name, so that naming them imports nothing."""
