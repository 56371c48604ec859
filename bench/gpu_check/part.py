"""What a part of the check is given, and what it answers."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.gpu_check.card import Card, Device
from bench.gpu_check.processes import Say


@dataclass(frozen=True, slots=True)
class Task:
    """`folder` takes files, `say` shows progress. `real` is the card; a test may put a virtual GPU
    in its place."""

    folder: Path
    card: Card
    real: Device
    virtual: Device
    say: Say


class Verdict(NamedTuple):
    """Whether a part found what it should (None: it was skipped), and its figures in one line."""

    passed: bool | None
    figures: str


class Part(NamedTuple):
    """`check` may raise anything: then the part failed. `limit_s` bounds what it starts."""

    check: Callable[[Task, float], Verdict]
    limit_s: float
    help: str


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A CSV file with a header."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
