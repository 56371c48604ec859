"""HTML tables of quantities: best values marked, reasons for what is undefined, formulas below."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from bench.report.differences import NO_DIFFERENCE, baselines, best, difference, difference_said
from bench.report.groups import comparable, labels
from bench.report.palette import backend_colour
from bench.report.quantities import Quantity
from bench.report.results import Run
from bench.report.statistics import LEAST_REPEATS

BEST_CLASS = 'class="best"'
UNDEFINED = "\N{EN DASH}"


class Footnotes:
    """Reasons, each with one mark, in the order in which they first came up."""

    def __init__(self) -> None:
        self._reasons: list[str] = []

    def mark(self, reason: str) -> str:
        """The mark of `reason`: 1, 2, 3, ..."""
        if reason not in self._reasons:
            self._reasons.append(reason)
        return str(self._reasons.index(reason) + 1)

    def html(self) -> str:
        """All reasons in one line; empty where there are none."""
        marked = (f"<sup>{i}</sup> {escape(text)}" for i, text in enumerate(self._reasons, 1))
        text = "; ".join(marked)
        return f'<p class="notes">{UNDEFINED} is undefined: {text}.</p>' if text else ""


def quantity_table(runs: Sequence[Run], columns: Sequence[Quantity], caption: str) -> str:
    """One row a run of one workload. Among comparable runs the best of each column is marked, and
    the others' differences from the first are said."""
    footnotes = Footnotes()
    mixed_times = len({run.time for run in runs} - {"unknown"}) > 1
    top, bases = _best_cells(runs, columns), baselines(runs)
    rows = []
    for run, label in zip(runs, labels(runs), strict=True):
        base = bases.get(run.folder)
        cells = "".join(
            _cell(quantity, run, run.folder in top[quantity.column], base, footnotes)
            for quantity in columns
        )
        rows.append(row(run, _row_head(run, label, mixed_times), cells))
    heads = "".join(_head(quantity, runs) for quantity in columns)
    compared = _compared_with(runs, bases)
    return table(caption, f'<th scope="col">run</th>{heads}', rows) + compared + footnotes.html()


def row(run: Run, head: str, cells: str) -> str:
    """A row of a table, known by its run's backend."""
    return f'<tr data-backend="{escape(run.backend)}"><th scope="row">{head}</th>{cells}</tr>'


def _compared_with(runs: Sequence[Run], bases: Mapping[str, Run]) -> str:
    """What the small differences are from, and what they rest on."""
    if not bases:
        return ""
    found = {base.folder: base.backend for base in bases.values()}
    first = " or ".join(dict.fromkeys(found.values()))
    if len(found) > 1:
        first += " with the same settings otherwise"
    count = min(len(run.each) for run in runs)
    rest = (
        f"95 % intervals over {count} repeats, paired by seed; {NO_DIFFERENCE}: no difference shown"
        if count >= LEAST_REPEATS
        else f"of {count} seed{'s' if count > 1 else ''}: an interval takes {LEAST_REPEATS} repeats"
    )
    return f'<p class="notes">Differences are from {escape(first)}; {rest}.</p>'


def table(caption: str, heads: str, rows: Iterable[str]) -> str:
    """A table that scrolls sideways in its own box where the page is too narrow for it."""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table class="sortable"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def formulas(columns: Sequence[Quantity]) -> str:
    """The formula of every column, percentiles of one thing said once."""
    said = {}
    for quantity in columns:
        heading = quantity.heading.removesuffix(" p50").removesuffix(" p90").removesuffix(" p99")
        unit = f" ({quantity.unit})" if quantity.unit else ""
        said[f"{heading}{unit}"] = quantity.formula
    return definitions(said)


def definitions(said: Mapping[str, str]) -> str:
    """What columns mean, folded."""
    items = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in said.items())
    return (
        '<details class="meanings"><summary>What the columns mean</summary>'
        f'<dl class="formulas">{items}</dl></details>'
    )


def run_name(run: Run, label: str) -> str:
    """A run's label with its backend's colour in front."""
    colour = backend_colour(run.backend)
    swatch = f'<span class="swatch" style="background:{colour}"></span>'
    return f'<span class="run">{swatch}<span>{breakable(label)}</span></span>'


def breakable(name: str) -> str:
    """`name`, escaped, which may break after `_`, `,`, `/` and `=`."""
    text = escape(name)
    for mark in "_,/=":
        text = text.replace(mark, f"{mark}<wbr>")
    return text


def _row_head(run: Run, label: str, mixed_times: bool) -> str:
    """The run's name, and below it whatever the columns' headings cannot say for all runs."""
    states = [run.status] if not run.completed else []
    states += [run.time] if mixed_times and run.time != "unknown" else []
    kind = "" if run.completed else ' class="bad"'
    state = f"<small{kind}>{escape(', '.join(states))}</small>" if states else ""
    return f"{run_name(run, label)}{state}"


def _head(quantity: Quantity, runs: Sequence[Run]) -> str:
    kinds = {run.time for run in runs} - {"unknown"}
    qualifier = kinds.pop() if quantity.modelled and len(kinds) == 1 else ""
    below = ", ".join(filter(None, (quantity.unit, qualifier)))
    unit = f"<small>{escape(below)}</small>" if below else ""
    return f'<th scope="col">{escape(quantity.heading)}{unit}</th>'


def _cell(
    quantity: Quantity, run: Run, is_best: bool, base: Run | None, footnotes: Footnotes
) -> str:
    value = quantity.read(run)
    if value is None:
        return f"<td>{UNDEFINED}<sup>{footnotes.mark(quantity.why_undefined(run))}</sup></td>"
    apart = difference(quantity, base, run) if base and quantity.better else None
    small = f"<small>{difference_said(apart)}</small>" if apart else ""
    best_class = f" {BEST_CLASS}" if is_best else ""
    return f'<td data-value="{value:.9g}"{best_class}>{quantity.shown(run)}{small}</td>'


def _best_cells(runs: Sequence[Run], columns: Sequence[Quantity]) -> dict[str, set[str]]:
    """For each column the folders of the runs that are best in it."""
    groups = comparable(runs)
    return {
        quantity.column: set().union(*(best(quantity, group) for group in groups))
        for quantity in columns
    }
