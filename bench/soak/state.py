"""The books of a soak: soak.json, written whole at every change, and the lock on its folder."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench.errors import SettingError
from bench.metrics.records import write_json

STATE = "soak.json"
LOCK = "soak.lock"

Began = Literal["start", "restart", "resume"]
SoakStatus = Literal["running", "stopped", "completed", "failed"]


@dataclass(slots=True)
class Segment:
    """What one worker did, from `start_s` to `end_s` (None: it has not ended) on the soak's clock.

    All traffic up to `sent_until_s`, on its own clock, was sent. `status` and `cause` are those of
    its summary; `lost` requests were open when it died.
    """

    folder: str
    start_s: float
    began: Began
    end_s: float | None = None
    sent_until_s: float | None = None
    status: str | None = None
    cause: str | None = None
    lost: int = 0


@dataclass(slots=True)
class Soak:
    """A soak so far. `restarts` are of workers that died, `resumed` of the whole command."""

    duration_s: float
    device: str
    command: list[str]
    status: SoakStatus = "running"
    cause: str | None = None
    restarts: int = 0
    resumed: int = 0
    wall_s: float = 0.0
    segments: list[Segment] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether no worker is to be started any more."""
        return self.status != "running"

    @property
    def reached_s(self) -> float:
        """Up to where there are results."""
        ends = [segment.end_s for segment in self.segments if segment.end_s is not None]
        return ends[-1] if ends else 0.0

    @property
    def last_that_sent(self) -> Segment | None:
        """The segment after which traffic goes on; None if none was sent."""
        sent = [segment for segment in self.segments if segment.sent_until_s is not None]
        return sent[-1] if sent else None

    @property
    def at_its_end(self) -> bool:
        """Whether there are results of the whole duration."""
        ran_out = bool(self.segments) and self.segments[-1].status == "completed"
        return ran_out or self.reached_s >= self.duration_s

    def write(self, folder: Path) -> None:
        """Replaces soak.json."""
        write_json(folder / STATE, asdict(self))


def read_soak(folder: Path) -> Soak:
    """The soak in `folder`. Raises SettingError where there is none."""
    try:
        content: dict[str, Any] = json.loads((folder / STATE).read_text(encoding="utf-8"))
        segments = [Segment(**segment) for segment in content.pop("segments")]
        return Soak(**content, segments=segments)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise SettingError(
            f"resume={folder} is no soak: give the folder that `fragbench soak` wrote, with its "
            f"{STATE}."
        ) from error


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds `folder` for one supervisor; a process that is gone holds nothing. Raises
    SettingError."""
    try:
        lock = (folder / LOCK).open("w")
    except OSError as error:
        raise SettingError(f"{folder} cannot be written to: {error.strerror}.") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SettingError(
                f"{folder} is being written by another `fragbench soak`: wait for it, or stop it."
            ) from error
        yield
