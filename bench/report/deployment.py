"""The report's last answers: what `fragbench plan` says before a run, as it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bench.report.facts import (
    Release,
    headroom_bytes,
    live_tokens,
    most_live_tokens,
    near_share,
    rejected_share,
    release,
    same_again,
)
from bench.report.groups import by_workload, labels
from bench.report.quantities import GIB, format_number
from bench.report.results import Run
from bench.report.sections import of_workload
from bench.report.tables import Footnotes, definitions, row, run_name, table

NOBODY_LEFT = "no client left"
RUN_TWICE = "run it twice to know"

COLUMNS = {
    "live tokens that fit": "KV budget B / bytes a token",
    "most at a time": "most live tokens in a sample of the timeline; share of those that fit",
    "near the limit": "requests of 90 to 100 % of max_model_len; requests rejected",
    "headroom at peak": "the card's memory that PyTorch had not reserved when it had reserved most",
    "clients that left": "cancelled requests whose clients left",
    "freed after": "from leaving to memory's being free: median, and longest (over HTTP p99); in "
    "process a step ends first",
    "held meanwhile": "most live tokens of those who had left, mean over the run; share of B",
    "the same again": "runs here of the same settings and seed ended with equal peaks of allocated "
    "and reserved memory, retries and OOMs: the load can reproduce the allocator's state",
}


def deployment_html(runs: Sequence[Run]) -> str:
    """One table a workload, and what its columns are."""
    tables = "".join(
        of_workload(workload, _table(group, runs, f"workload {workload}"))
        for workload, group in by_workload(runs).items()
    )
    plan = '<p class="notes">fragbench plan answers the same before a run: docs/plan.md.</p>'
    return f"{tables}{plan}{definitions(COLUMNS)}"


def _table(group: Sequence[Run], runs: Sequence[Run], caption: str) -> str:
    footnotes = Footnotes()
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in ("run", *COLUMNS))
    rows = [
        _row(run, label, runs, footnotes) for run, label in zip(group, labels(group), strict=True)
    ]
    return table(caption, heads, rows) + footnotes.html()


def _row(run: Run, label: str, runs: Sequence[Run], footnotes: Footnotes) -> str:
    freed, fit = release(run), live_tokens(run)
    served = bool(run.requests.paths)
    nobody = NOBODY_LEFT if served else "not recorded"
    live, headroom = most_live_tokens(run), headroom_bytes(run)
    clients = (freed.clients if freed else 0) if served else None
    held = freed.held_tokens if freed else None
    cells = [
        _cell(fit, None if fit is None else f"{fit:,.0f}", "not recorded", footnotes),
        _cell(live, _of(live, fit), "not recorded", footnotes),
        _cell(near_share(run), _near(run), "not recorded", footnotes),
        _cell(headroom, _gib(headroom), _why_no_headroom(run), footnotes),
        _cell(clients, None if clients is None else f"{clients:,}", nobody, footnotes),
        _cell(freed.p50_s if freed else None, _waits(freed), nobody, footnotes),
        _cell(held, _of(held, fit), "not known over HTTP" if freed else nobody, footnotes),
        f"<td>{escape(same_again(run, runs) or RUN_TWICE)}</td>",
    ]
    return row(run, run_name(run, label), "".join(cells))


def _cell(value: float | None, text: str | None, why: str, footnotes: Footnotes) -> str:
    """A number, which sorts, as a person reads it."""
    if value is None or text is None:
        return f"<td>\N{EN DASH}<sup>{footnotes.mark(why)}</sup></td>"
    return f'<td data-value="{value:.9g}">{escape(text)}</td>'


def _of(tokens: float | None, fit: float | None) -> str | None:
    """Tokens and their share of those that fit."""
    if tokens is None or not fit:
        return None
    return f"{tokens:,.0f} ({100 * tokens / fit:.1f} %)"


def _near(run: Run) -> str | None:
    near, rejected = near_share(run), rejected_share(run)
    if near is None or rejected is None:
        return None
    return f"{100 * near:.1f} %; rejected {100 * rejected:.1f} %"


def _gib(nbytes: float | None) -> str | None:
    return None if nbytes is None else f"{nbytes / GIB:,.2f} GiB"


def _why_no_headroom(run: Run) -> str:
    if run.device == "cpu":
        return f"no allocator statistics with device={run.device}"
    return "not recorded"


def _waits(freed: Release | None) -> str | None:
    if freed is None or freed.p50_s is None:
        return None
    longest = "" if freed.longest_s is None else f", {format_number(freed.longest_s)} s"
    return f"{format_number(freed.p50_s)} s{longest}"
