"""What an exercise is: settings, what it does with them, and a finding of two sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from matplotlib.figure import Figure
from rich.table import Table

from bench.paper.task import Task

Own = Mapping[str, float]
"""An exercise's own settings, each a number."""


class Number(NamedTuple):
    """A setting of an exercise's own: a number from `least` to `most`, a whole one unless
    `fraction`."""

    default: float
    least: float
    most: float
    unit: str
    meaning: str
    fraction: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it. `numbers` go into the JSON file, `texts` into files of their names."""

    finding: tuple[str, str]
    numbers: dict[str, Any]
    draw: Callable[[], Figure]
    """In the style that is in force."""
    tables: tuple[Table, ...] = ()
    texts: Mapping[str, str] = field(default_factory=dict)


class Exercise(Protocol):
    """One exercise. `own` are its settings by name. Of those of `fragbench run` it takes those in
    `takes`, by their first part (None: all), but none in `varied`, which it sets itself."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def own(self) -> Mapping[str, Number]: ...
    @property
    def takes(self) -> tuple[str, ...] | None: ...
    @property
    def varied(self) -> tuple[str, ...]: ...

    def run(self, task: Task, own: Own) -> Outcome:
        """Does the work; results beside those of the outcome go to `task.folder`. Raises
        SettingError."""
        ...
