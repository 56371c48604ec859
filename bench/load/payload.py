"""What the processes of a load run are told, as plain data that travels."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bench.load.settings import LoadSettings, RetrySettings

STOPPED = "stopped by the user"
"""The cause of a run that was ended early by a signal, or on Locust's page."""


@dataclass(frozen=True)
class Payload:
    """`load.url` and `load.model` are known. `workload` is its section of the configuration;
    `workers` is how many share it, `users` how many a closed loop has, None an open one;
    `expected` is how many requests it has, where that is known.
    Of its seconds, and those of the settings, `time_scale` pass in one of the clients'."""

    load: LoadSettings
    workload: dict[str, Any]
    seed: int
    stop_after_s: float | None
    vocab_size: int
    workers: int
    users: int | None
    expected: int | None
    time_scale: float = 1.0

    def plain(self) -> dict[str, Any]:
        """As JSON or a message carries it."""
        return asdict(self)

    @classmethod
    def read(cls, data: dict[str, Any]) -> Payload:
        """Of what plain() gave."""
        load = load_settings(data["load"])
        return cls(**(data | {"load": load}))


def load_settings(section: dict[str, Any]) -> LoadSettings:
    """The settings of a section of plain data that has all of them."""
    return LoadSettings(**(section | {"retries": RetrySettings(**section["retries"])}))
