"""The exercises that `fragbench exercise` knows, by letter."""

from __future__ import annotations

from bench.exercise.base import Exercise
from bench.exercise.expandable import Expandable
from bench.exercise.fragment import Fragment
from bench.exercise.hours import Hours
from bench.exercise.lengths import Lengths
from bench.exercise.snapshot import Snapshot

_ALL: tuple[Exercise, ...] = (Fragment(), Expandable(), Snapshot(), Lengths(), Hours())
EXERCISES = {each.name: each for each in _ALL}
