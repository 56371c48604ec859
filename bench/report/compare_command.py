"""`fragbench compare A B`: what moved between two sets of results, for people and for CI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.errors import SettingError
from bench.report.changes import COMPARED, Change, Comparison, compare
from bench.report.differences import difference_said
from bench.report.quantities import Quantity, format_number
from bench.report.results import load_runs
from bench.report.statistics import LEAST_REPEATS

HELP = """\
usage: fragbench compare BEFORE AFTER [fail_over=5%] [quantities=NAME,...] [out=FILE.csv]

Two folders of results, such as before and after a change: runs of the same name are compared, or
the only run of each.
With fail_over the exit code is 1 if any quantity is worse by more than that, beyond noise where
runs were repeated (repeats=5 or more); without repeats a change is taken as it is. It is 1 too if
a run completed before and does not after.

quantities: """
SETTINGS = ("fail_over", "quantities", "out")
REGRESSED = 1
PLAIN_WIDTH = 130
MOST_UNLIKE = 12


class _Asked(NamedTuple):
    before: Path
    after: Path
    fail_over: float | None
    quantities: list[Quantity]
    out: Path | None


def main(argv: Sequence[str]) -> int:
    """Prints what moved; returns 1 for a regression beyond `fail_over`. Raises SettingError."""
    if {"-h", "--help"} & set(argv):
        print(HELP + ", ".join(COMPARED))
        return 0
    asked = _read(argv)
    found = compare(load_runs(asked.before), load_runs(asked.after), asked.quantities)
    if not found.changes and not found.lost:
        raise SettingError(
            f"compare: no completed run of {asked.after} has the name of one of {asked.before}: "
            "give two folders made by the same command."
        )
    if asked.out is not None:
        _write(found, asked.out)
    console = Console()
    _show(found, console if console.is_terminal else Console(width=PLAIN_WIDTH))
    if asked.fail_over is None:
        return 0
    return _judge(found, asked.fail_over)


def _write(found: Comparison, out: Path) -> None:
    try:
        found.table().to_csv(out, index=False, lineterminator="\n")
    except OSError as error:
        raise SettingError(f"out={out} cannot be written: {error.strerror}.") from error


def _judge(found: Comparison, fail_over: float) -> int:
    worse = found.regressions(fail_over)
    if not worse and not found.lost:
        print(f"Nothing is worse by more than {100 * fail_over:g} %.")
        return 0
    for name, cause in found.lost.items():
        print(f"WORSE: {name} completed before, and not after: {cause}")
    for change in worse:
        noise = "" if change.repeated else f" (not repeated {LEAST_REPEATS} times: may be noise)"
        print(f"WORSE: {change.name}: {change.quantity.heading} {_said(change)}{noise}")
    return REGRESSED


def _show(found: Comparison, console: Console) -> None:
    for name in dict.fromkeys(change.name for change in found.changes):
        own = [change for change in found.changes if change.name == name]
        moved = [change for change in own if change.verdict != "same"]
        if not moved:
            console.print(f"{name}: all {len(own)} quantities are the same.", markup=False)
            continue
        console.print(_table(f"{name} ({own[0].workload})", moved))
        if len(moved) < len(own):
            console.print(f"The same: {len(own) - len(moved)} more.", style="dim")
    for name, cause in found.lost.items():
        console.print(f"{name}: completed before, and not after: {cause}", markup=False)
    for name, cause in found.not_compared.items():
        console.print(f"{name}: not compared, it did not complete before: {cause}", markup=False)
    for said, names in (("only before", found.only_before), ("only after", found.only_after)):
        if names:
            console.print(f"{said}: {', '.join(names)}", markup=False)
    unlike = [f"{key}: {old} -> {new}" for key, (old, new) in found.unlike.items()]
    if unlike:
        more = f"; and {len(unlike) - MOST_UNLIKE} more" if len(unlike) > MOST_UNLIKE else ""
        console.print(f"Differs: {'; '.join(unlike[:MOST_UNLIKE])}{more}", markup=False)


def _table(title: str, changes: Sequence[Change]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading, side in (
        ("quantity", "left"), ("before", "right"), ("after", "right"), ("change", "left"),
        ("verdict", "left"),
    ):  # fmt: skip
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    for change in changes:
        verdict: str = change.verdict
        if verdict in ("better", "worse") and not change.repeated:
            verdict += " (not repeated)"
        unit = f", {change.quantity.unit}" if change.quantity.unit else ""
        table.add_row(
            change.quantity.heading + unit,
            *(_number(change.quantity, value) for value in (change.before, change.after)),
            _said(change),
            verdict,
        )
    return table


def _said(change: Change) -> str:
    if change.share is not None:
        return difference_said(change.share)
    return "from 0" if change.before == 0 and change.after else ""


def _number(quantity: Quantity, value: float | None) -> str:
    return "-" if value is None else format_number(value * quantity.scale, quantity.digits)


def _read(argv: Sequence[str]) -> _Asked:
    given = dict(
        arg.split("=", 1) for arg in argv if arg.partition("=")[0] in SETTINGS and "=" in arg
    )
    folders = [arg for arg in argv if arg.partition("=")[0] not in SETTINGS]
    if len(folders) != 2 or any(folder.startswith("-") for folder in folders):
        raise SettingError(
            f"compare: give two folders of results, before and after; {len(folders)} were given "
            f"({' '.join(folders) or 'none'}). Settings are {', '.join(f'{s}=' for s in SETTINGS)}."
        )
    out = Path(given["out"]) if given.get("out") else None
    if out is not None and not out.parent.is_dir():
        raise SettingError(f"out={out} cannot be written: {out.parent} is no folder.")
    return _Asked(
        Path(folders[0]),
        Path(folders[1]),
        _share(given["fail_over"]) if "fail_over" in given else None,
        _quantities(given.get("quantities")),
        out,
    )


def _share(text: str) -> float:
    """`5%` or `0.05`."""
    number, percent = text.removesuffix("%"), text.endswith("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise SettingError(f"fail_over={text} is no share: give one such as 5% or 0.05, from 0 up.")
    return value


def _quantities(text: str | None) -> list[Quantity]:
    if text is None:
        return list(COMPARED.values())
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in COMPARED]
    if unknown:
        raise SettingError(f"quantities={text}: {unknown[0]} is none of {', '.join(COMPARED)}.")
    return [COMPARED[name] for name in names]
