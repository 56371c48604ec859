"""A fit as a terminal shows it."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from bench.traffic.fit.choice import Choice
from bench.traffic.fit.gaps import ArrivalFit
from bench.traffic.fit.result import WANTED, Pair, Result

PERCENTILES = ("p50", "p90", "p99")
ERRORS = ("mean", *PERCENTILES)
UNITS = {"prompt_tokens": "prompt, tokens", "output_tokens": "output, tokens",
         "total_tokens": "both, tokens", "gap_s": "gap, s"}  # fmt: skip


def print_fit(result: Result, console: Console) -> None:
    """What was tried, what the chosen ones give, and what the fit leaves out."""
    for number, part in enumerate(result.parts, 1):
        of = f"{number} of {len(result.parts)}, " if len(result.parts) > 1 else ""
        console.print(_tried(f"{of}prompt", part.prompt))
        console.print(_tried(f"{of}output", part.output))
    console.print(_processes(result.arrivals))
    console.print(_generated(result))
    for line in [*result.arrivals.notes, *_not_carried(result)]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _tried(name: str, choice: Choice) -> Table:
    table = _table_of(name, ERRORS)
    for fit in choice.tried:
        errors = [_percent(fit.errors[heading]) for heading in ERRORS]
        chosen = "chosen" if fit is choice.chosen else ""
        table.add_row(fit.candidate.family, fit.candidate.how, *errors, f"{fit.ks:.3f}", chosen)
    return table


def _processes(arrivals: ArrivalFit) -> Table:
    table = _table_of("gaps between arrivals", PERCENTILES)
    for each in arrivals.tried:
        errors = [_percent(each.errors.get(heading)) for heading in PERCENTILES]
        chosen = "chosen" if each is arrivals.chosen else ""
        table.add_row(each.family, each.by, *errors, f"{each.ks:.3f}", chosen)
    return table


def _table_of(name: str, errors: tuple[str, ...]) -> Table:
    title = f"{name}: relative errors"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("family")
    table.add_column("by")
    for heading in (*errors, "KS"):
        table.add_column(heading, justify="right")
    table.add_column("")
    return table


def _generated(result: Result) -> Table:
    requests = f"{len(result.pairs['prompt_tokens'].generated):,}"
    table = Table(title=f"The trace, and {requests} generated requests", title_justify="left",
                  box=None, padding=(0, 2, 0, 0))  # fmt: skip
    table.add_column("")
    for heading in PERCENTILES:
        table.add_column(heading, justify="right")
    for key, pair in result.pairs.items():
        table.add_row(UNITS[key], *_cells(pair))
    return table


def _cells(pair: Pair) -> list[str]:
    cells = []
    for values in pair.percentiles().values():
        shown = _percent(values["error"])
        cells.append(f"{values['trace']:,.5g} -> {values['generated']:,.5g} ({shown})")
    return cells


def _not_carried(result: Result) -> list[str]:
    trace, lines = result.trace, []
    if trace.rank_correlation is not None:
        among = "" if len(result.parts) == 1 else f" in each of {len(result.parts)} parts"
        lines.append(
            f"Prompts and outputs have a rank correlation of {trace.rank_correlation:.2f} "
            f"(Spearman's); the fit draws them independently{among}."
        )
    if result.worst_total > WANTED:
        lines.append(
            f"Prompt + output is off by up to {100 * result.worst_total:.1f} %: more kinds= keep "
            "more of how outputs depend on prompts (docs/preview.md)."
        )
    if trace.found_share:
        lines.append(f"{100 * trace.found_share:.1f} % of prompt tokens were said before; the fit "
                     "shares none.")  # fmt: skip
    if trace.later_turns:
        lines.append(f"{trace.later_turns:,} later turns are requests of their own here.")
    if trace.branched:
        lines.append(f"{trace.branched:,} requests have several answers; here each has one.")
    return lines


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{100 * error:+.1f} %"
