"""`fragbench exercise a|b|c|d|e`: two sentences with their numbers, a JSON file and a picture."""

from __future__ import annotations

from collections.abc import Sequence

from bench.cells import INTERRUPTED
from bench.errors import SettingError
from bench.exercise.allocator_jobs import no_allocator
from bench.exercise.base import Exercise, Number, Outcome, Own
from bench.exercise.registry import EXERCISES
from bench.experiment import compose_cells, make_console
from bench.metrics.records import write_json
from bench.paper.task import Stopped, Task
from bench.report.drawing import png, style
from bench.report.palette import LIGHT

NAME = "exercise"

_HELP = """\
usage: fragbench exercise a|b|c|d|e [out=DIR] [key=value ...]

The classic exercises on PyTorch's real caching allocator. Each prints what it found in two
sentences with their numbers, and writes them, a picture and what is behind them to a folder.

{exercises}

  out=DIR      folder for the results; a dated one under results/ otherwise
  gpu=NAME     the virtual card; device=cuda takes the one that is there"""


def main(argv: list[str]) -> int:
    """`fragbench exercise`: its exit code. Raises SettingError."""
    if any(argument in ("-h", "--help") for argument in argv):
        print(_help())
        return 0
    exercise = _exercise(argv)
    own, overrides, out = _read(exercise, argv[1:])
    command = ["fragbench", NAME, *argv]
    _, folder = compose_cells([f"out={out}"] if out else [], command)
    task = Task(folder, make_console(), command, overrides)
    try:
        outcome = exercise.run(task, own)
    except Stopped:
        return INTERRUPTED
    _write(exercise, own, outcome, task)
    return task.exit_code


def _exercise(argv: Sequence[str]) -> Exercise:
    known = ", ".join(EXERCISES)
    if not argv or "=" in argv[0] or argv[0].startswith("-"):
        raise SettingError(f"exercise: its letter comes first: choose one of {known}.")
    if argv[0] not in EXERCISES:
        raise SettingError(f"exercise {argv[0]} is unknown: choose one of {known}.")
    return EXERCISES[argv[0]]


def _read(exercise: Exercise, argv: Sequence[str]) -> tuple[Own, list[str], str | None]:
    """An exercise's own settings, those of `fragbench run`, and `out`. Raises SettingError."""
    own: dict[str, float] = {name: number.default for name, number in exercise.own.items()}
    overrides, out = [], None
    for argument in argv:
        key, _, value = argument.partition("=")
        if argument.startswith("-"):
            raise SettingError(f"exercise: {argument} is no option here: only --help is.")
        if key in ("out", *own) and not value:
            raise SettingError(f"{key} has no value: give it one, as in {key}={_shown(own, key)}.")
        if key == "out":
            out = value
        elif key in own:
            own[key] = _number(key, value, exercise.own[key])
        else:
            _check(exercise, argument)
            overrides.append(argument)
    return own, overrides, out


def _shown(own: Own, key: str) -> str:
    return f"{own[key]:g}" if key in own else "results/mine"


def _number(key: str, value: str, asked: Number) -> float:
    """Raises SettingError."""
    try:
        number = float(value) if asked.fraction else int(value)
    except ValueError:
        number = float("nan")
    if not asked.least <= number <= asked.most:
        kind = "number" if asked.fraction else "whole number"
        raise SettingError(
            f"{key}={value} is out of range: give a {kind} of {asked.unit} from {asked.least:,} "
            f"to {asked.most:,}, such as {asked.default:g}."
        )
    return number


def _check(exercise: Exercise, argument: str) -> None:
    """Raises SettingError for a setting that would do nothing, or that the exercise varies."""
    key = argument.lstrip("+~").partition("=")[0]
    first = key.partition(".")[0].partition("/")[0]
    if exercise.takes is not None and first not in exercise.takes:
        known = ", ".join(("out", *exercise.own, *exercise.takes))
        raise SettingError(
            f"{argument} is of no use to exercise {exercise.name}: leave it out; it takes {known}."
        )
    if argument == "device=cpu":
        raise no_allocator("cpu", exercise.name)
    if key in exercise.varied:
        raise SettingError(
            f"{argument} is what exercise {exercise.name} sets itself: leave it out."
        )


def _write(exercise: Exercise, own: Own, outcome: Outcome, task: Task) -> None:
    task.folder.mkdir(parents=True, exist_ok=True)
    table, picture = (task.folder / f"exercise_{exercise.name}.{kind}" for kind in ("json", "png"))
    found = {"exercise": exercise.name, "title": exercise.title, "finding": outcome.finding,
             "command": task.command, "settings": dict(own), **outcome.numbers}  # fmt: skip
    write_json(table, found)
    with style(LIGHT):
        picture.write_bytes(png(outcome.draw()))
    for name, text in outcome.texts.items():
        (task.folder / name).write_text(text, encoding="utf-8")
    for each in outcome.tables:
        task.console.print(each, "")
    for sentence in outcome.finding:
        task.console.print(sentence, markup=False, highlight=False)
    for path in (picture, table, *(task.folder / name for name in outcome.texts)):
        task.console.print(f"Wrote {path}", markup=False, highlight=False, soft_wrap=True)


def _help() -> str:
    lines = []
    for name, exercise in EXERCISES.items():
        lines.append(f"  {name}  {exercise.title}")
        lines += [
            f"       {f'{key}={number.default:g}':18} {number.meaning} ({number.unit})"
            for key, number in exercise.own.items()
        ]
        takes = "any setting of `fragbench run`"
        if exercise.takes is not None:
            takes = ", ".join(f"{each}=" for each in exercise.takes)
        lines.append(f"       and {takes}")
    return _HELP.format(exercises="\n".join(lines))
