"""A preview as a terminal shows it."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.gpu import GIB
from bench.report.quantities import format_number

COLUMNS = ("mean", "p50", "p90", "p99", "max")
PARTS = {"prompt_tokens": "prompt", "output_tokens": "output", "total_tokens": "both"}


def print_preview(figures: dict[str, Any], console: Console) -> None:
    """Counts and rates, lengths, and what they come to against the limits."""
    for line in [*_counts(figures), *_rates(figures)]:
        _say(console, line)
    console.print(_lengths(figures))
    for line in [*_limits(figures), *_sharing(figures), *_people(figures), *_live(figures["live"])]:
        _say(console, line)


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _counts(figures: dict[str, Any]) -> list[str]:
    turns, sessions = figures["turns"], figures["sessions"]
    of = "" if figures["whole"] else f" (the first {turns:,}: there are more)"
    said = f"Requests: {turns:,}{of}"
    if sessions < turns:
        said += f" in {sessions:,} sessions, {turns - sessions:,} of them later turns"
    return [said, *(line for facts in figures["traces"].values() for line in _trace(facts))]


def _trace(facts: dict[str, Any]) -> list[str]:
    """What was left out of a file."""
    lines = [
        f"Read {facts['file']} ({facts['format']}): {facts['rows']:,} rows, "
        f"{facts['skipped_rows']:,} skipped, {facts['failed_requests']:,} failed requests "
        f"{facts['failed_requests_are']}"
    ]
    if facts["first_skipped_row"]:
        lines.append(f"First row skipped: {facts['first_skipped_row']}")
    return lines


def _rates(figures: dict[str, Any]) -> list[str]:
    rates, times = figures["rates"], figures["times"]
    if figures["users"] is not None:
        return [f"Rate: as the server answers {figures['users']:,} users (a closed loop)"]
    sessions = ""
    if figures["sessions"] < figures["turns"]:
        sessions = f" ({_number(rates['sessions_per_s'])} sessions/s, once as many end as start)"
    waits = {None: "", "none": "; later turns do not wait for answers here"}
    answers = waits.get(times["answers"], "; later turns wait for modelled answers")
    return [
        f"Rate: {_number(rates['requests_per_s'])} requests/s{sessions}, "
        f"{_number(rates['prompt_tokens_per_s'])} prompt tokens/s, "
        f"{_number(rates['output_tokens_per_s'])} output tokens/s",
        f"Times: the last one is sent at {_number(times['last_s'])} s"
        f"{answers}; gaps' cv {_number(times['start_gap_cv'])} (Poisson: 1); "
        f"busiest 10 s {_number(times['peak_to_mean_10s'])} x the mean",
    ]


def _lengths(figures: dict[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("tokens")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for key, name in PARTS.items():
        table.add_row(name, *_cells(figures["lengths"][key]))
    for kind, values in figures["kinds"].items():
        name = f"{kind or 'unnamed'} ({_percent(values['share'])})"
        for key in ("prompt_tokens", "output_tokens"):
            table.add_row(escape(f"{name}: {PARTS[key]}"), *_cells(values[key]))
    return table


def _cells(values: dict[str, float | None]) -> list[str]:
    return ["-" if values[c] is None else f"{values[c]:,.0f}" for c in COLUMNS]


def _limits(figures: dict[str, Any]) -> list[str]:
    limits = figures["limits"]
    return [
        f"At 90 to 100 % of max_model_len={limits['max_model_len']:,}: "
        f"{_percent(limits['near_share'])}; above it, so rejected: "
        f"{_percent(limits['too_long_share'])}; rejected for more branches than "
        f"max_num_seqs={limits['max_num_seqs']:,}: {_percent(limits['too_many_branches_share'])}"
    ]


def _sharing(figures: dict[str, Any]) -> list[str]:
    prefix = figures["prefix"]
    return [
        f"Prompt tokens said before: {_percent(prefix['found_share'])}; in full blocks of "
        f"{prefix['block_tokens']}: {_percent(prefix['found_block_share'])} (nothing evicted)"
    ]


def _people(figures: dict[str, Any]) -> list[str]:
    branches, clients, turns = figures["branches"], figures["clients"], figures["turns"]
    counts = {
        "with samples": branches["samples"],
        "with beams": branches["beams"],
        "whose client leaves": clients["leave"],
        "whose client reads slowly": clients["read_slowly"],
    }
    said = [f"{_percent(count / turns)} {what}" for what, count in counts.items() if count]
    if branches["samples"] or branches["beams"]:
        said.append(f"{_number(branches['mean_branches'])} branches on average")
    return [f"Requests {', '.join(said)}"] if said else []


def _live(live: dict[str, Any]) -> list[str]:
    budget, bound = live["kv_budget_bytes"], live["kv_budget_is"]
    room = "weights alone do not fit this GPU"
    if budget is not None:
        room = f"{'' if bound == 'set' else 'at most '}{_number(budget / GIB)} GiB"
    head = f"Live KV, modelled, were memory no limit (KV budget: {room}):"
    nothing, everything = live["no_prefix_cache"], live["unbounded_prefix_cache"]
    if nothing == everything:
        return [f"{head} {_state(nothing)}"]
    return [
        head,
        f"  prompts computed whole: {_state(nothing)}",
        f"  what was said before found in a cache: {_state(everything)}",
    ]


def _state(live: dict[str, Any]) -> str:
    if live["kv_tokens"] is None:
        return f"unknown: {live['why_null']}"
    return (
        f"{live['kv_tokens']:,.0f} tokens, {_number(live['kv_bytes'] / GIB)} GiB, in "
        f"{_number(live['requests'])} requests; steps of {_number(live['step_s'] * 1000)} ms"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else format_number(value)
