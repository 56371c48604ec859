"""The parts of the report's page, each a function from runs to HTML."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from bench.report import quantities as q
from bench.report.drawing import Picture
from bench.report.finding import Finding
from bench.report.groups import by_workload, common, labels, times
from bench.report.palette import backend_order
from bench.report.quantities import Quantity
from bench.report.results import OUTCOMES, Run
from bench.report.tables import (
    BEST_CLASS,
    UNDEFINED,
    Footnotes,
    definitions,
    formulas,
    quantity_table,
    row,
    run_name,
    table,
)

OVERVIEW = (
    q.REQUESTS["completed"], q.REQUESTS_PER_S, q.TTFT["p50"], q.TTFT["p99"], q.TPOT["p50"],
    q.BATCH_MEAN, q.BOUND_TIME, q.SHARES["token_states"], q.HELD_WASTE,
)  # fmt: skip
WASTE = (q.BOUND_TIME, *q.SHARES.values(), q.HELD_WASTE, q.SHARING_SAVED, q.HIT_RATE)
LATENCY = (*q.TTFT.values(), *q.TPOT.values(), *q.E2E.values(), q.NORMALIZED_LATENCY)
THROUGHPUT = (
    q.REQUESTS_PER_S, q.OUTPUT_TOKENS_PER_S, q.TOTAL_TOKENS_PER_S, q.BATCH_MEAN, q.BATCH_MAX,
    q.BOUND_BATCH, q.PREEMPTIONS, q.SIMULATED, q.WALL,
)  # fmt: skip
ALLOCATOR = (q.PEAK_RESERVED, q.OOMS, q.RETRIES)
FIRST_INCIDENTS = 3
INCIDENT_FIELDS = (
    "kind", "layer", "first_s", "request_id", "wanted_tokens", "refusals", "waited_s",
    "preempted_request", "error", "time_s", "count",
)  # fmt: skip
BEST_MARK = (
    '<p class="notes">\N{BLACK RIGHT-POINTING SMALL TRIANGLE} best among the completed runs that '
    "differ only in backend, engine and allocator settings, and whatever it is not ahead of by "
    "more than 1 % and noise.</p>"
)

TIME_MEANING = {
    "modelled": "Times are modelled: a cost model on a virtual clock, not a stopwatch.",
    "measured": "Times are measured.",
    "measured and modelled": "Some times are modelled, some measured: each run says which.",
}


def finding_html(found: Finding | None) -> str:
    """The first sentence; where nothing can be compared, that."""
    if found is None:
        text = "No two completed runs of the same traffic are here, so nothing is compared."
        return f'<p class="finding none">{text}</p>'
    details = "".join(f"<li>{escape(text)}</li>" for text in found.details)
    rest = f'<ul class="finding-details">{details}</ul>' if details else ""
    return f'<p class="finding">{escape(found.headline)}</p>{rest}'


def setting_html(runs: Sequence[Run]) -> str:
    """What was run, in one line, and what kind of time it was."""
    made, rows = sum(len(run.each) for run in runs), len(runs)
    facts = [f"{made} run{'s' if made > 1 else ''}"]
    if made > rows:
        facts = [f"{made} runs of {rows} settings"]
    facts += [common(run.model for run in runs), common(run.gpu for run in runs)]
    facts.append(f"device {common(run.device for run in runs)}")
    meaning = TIME_MEANING.get(times(runs), "")
    line = " · ".join(map(escape, facts))
    return f'<p class="setting">{line}. <strong>{meaning}</strong></p>'


def problems_html(runs: Sequence[Run]) -> str:
    """Runs that did not complete, with causes; empty where all did."""
    bad = [run for run in runs if not run.completed]
    if not bad:
        return ""
    items = "".join(
        f"<li><b>{escape(run.name)}</b>: {escape('; '.join([_ending(run), *run.notes]))}</li>"
        for run in bad
    )
    return (
        f'<aside class="problems"><p>{len(bad)} of {len(runs)} runs did not complete. '
        f"What they left is shown and not compared.</p><ul>{items}</ul></aside>"
    )


def _ending(run: Run) -> str:
    return f"{run.status}: {run.cause}"


def filters_html(runs: Sequence[Run]) -> str:
    """Boxes for what there is more than one of; a script shows them."""
    kinds = {
        "workload": list(by_workload(runs)),
        "backend": sorted({run.backend for run in runs}, key=backend_order),
    }
    sets = "".join(
        f"<fieldset><legend>{kind}</legend>{''.join(_box(kind, name) for name in names)}</fieldset>"
        for kind, names in kinds.items()
        if len(names) > 1
    )
    if not sets:
        return ""
    return (
        '<form id="filters" hidden aria-label="What is shown">'
        f'{sets}<button type="reset">show all</button></form>'
    )


def _box(kind: str, name: str) -> str:
    box = f'<input type="checkbox" name="{kind}" value="{escape(name)}" checked>'
    return f"<label>{box}{escape(name)}</label>"


def each_workload(
    runs: Sequence[Run],
    columns: Sequence[Quantity],
    figure: Callable[[str], str] = lambda workload: "",
    *,
    below: bool = False,
) -> str:
    """For each workload its figure and a table of the same numbers (or the figure `below` it);
    then what the marks and the columns mean."""
    parts = []
    for workload, group in by_workload(runs).items():
        numbers = quantity_table(group, columns, f"workload {workload}")
        drawn = figure(workload)
        parts.append(of_workload(workload, numbers + drawn if below else drawn + numbers))
    text = "".join(parts)
    return text + (BEST_MARK if BEST_CLASS in text else "") + formulas(columns)


def of_workload(workload: str, html: str) -> str:
    """A part of the page that is of one workload."""
    return f'<div data-workload="{escape(workload)}">{html}</div>'


def runs_section(
    place: str,
    title: str,
    runs: Sequence[Run],
    columns: Iterable[str],
    cells: Callable[[Run, Footnotes], str],
    meanings: Mapping[str, str],
) -> str:
    """A section of the page, with a table of runs for each workload and what its columns mean."""
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in ("run", *columns))
    parts, footnotes = [], Footnotes()
    for workload, group in by_workload(runs).items():
        rows = [
            row(run, run_name(run, label), cells(run, footnotes))
            for run, label in zip(group, labels(group), strict=True)
        ]
        parts.append(of_workload(workload, table(f"workload {workload}", heads, rows)))
    return (
        f'<section id="{place}"><h2>{escape(title)}</h2>'
        f"{''.join(parts)}{footnotes.html()}{definitions(meanings)}</section>"
    )


def of_run(run: Run) -> str:
    """Attributes of a part of the page that is of one run."""
    return f' data-workload="{escape(run.workload)}" data-backend="{escape(run.backend)}"'


def picture_html(picture: Picture) -> str:
    """A figure as part of the page, in the page's colours."""
    drawn = picture.inline.replace(
        "<svg ", f'<svg role="img" aria-label="{escape(picture.text)}" ', 1
    )
    return (
        f'<figure><div class="image">{drawn}</div>'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def requests_html(runs: Sequence[Run]) -> str:
    """Every request accounted for, and why those that failed did."""
    columns = [q.REQUESTS[key] for key in (*OUTCOMES, "sent")]
    heads = "".join(f'<th scope="col">{escape(c.heading)}</th>' for c in columns)
    parts = []
    for workload, group in by_workload(runs).items():
        rows = [_request_row(run, label) for run, label in zip(group, labels(group), strict=True)]
        header = f'<th scope="col">run</th>{heads}<th scope="col">accounted for</th>'
        parts.append(of_workload(workload, table(f"workload {workload}", header, rows)))
    causes = "".join(_request_causes(run) for run in runs)
    repeats = '<p class="notes">Repeats are counted together.</p>'
    note = repeats if any(run.repeats for run in runs) else ""
    return "".join(parts) + note + (f"<ul>{causes}</ul>" if causes else "") + formulas(columns)


def _request_row(run: Run, label: str) -> str:
    counts = run.request_counts
    cells = [
        f'<td data-value="{counts[key]}">{counts[key]:,}</td>'
        if key in counts
        else f"<td>{UNDEFINED}</td>"
        for key in (*OUTCOMES, "sent")
    ]
    return row(run, run_name(run, label), "".join(cells) + _balance(counts))


def _balance(counts: Mapping[str, int]) -> str:
    if "sent" not in counts:
        return '<td class="bad">unknown: the run did not finish</td>'
    difference = counts["sent"] - sum(counts.get(key, 0) for key in OUTCOMES)
    if difference == 0:
        return "<td>all</td>"
    return f'<td class="bad">off by {difference:+,}</td>'


def _request_causes(run: Run) -> str:
    said = "; ".join(run.request_causes())
    return f"<li{of_run(run)}><b>{escape(run.name)}</b>: {escape(said)}</li>" if said else ""


def incidents_html(runs: Sequence[Run]) -> str:
    """How many incidents each run had, of which kinds, and its first few."""
    items = []
    for run in runs:
        counts = [each.number("incidents") for each in run.each]
        total = sum(len(each.incidents) if count is None else int(count)
                    for each, count in zip(run.each, counts, strict=True))  # fmt: skip
        kinds = Counter(str(i["kind"]) for i in run.incidents if "kind" in i)
        said = ", ".join(f"{kind} {number:,}" for kind, number in kinds.most_common())
        shown = "".join(f"<li>{escape(_incident(i))}</li>" for i in run.incidents[:FIRST_INCIDENTS])
        first = f"<ol>{shown}</ol>" if shown else ""
        kinds_said = f" ({escape(said)})" if said else ""
        said = f"<b>{escape(run.name)}</b>: {total:,}{kinds_said}{first}"
        items.append(f"<li{of_run(run)}>{said}</li>")
    return f'<ul class="incidents">{"".join(items)}</ul>'


def _incident(incident: Mapping[str, Any]) -> str:
    """What happened to whom; the state of memory that goes with it stays in the file."""
    told = {key: incident[key] for key in INCIDENT_FIELDS if incident.get(key) is not None}
    return _flat(told or incident)


def details_html(runs: Sequence[Run]) -> str:
    """Settings and versions of every run, folded."""
    return "".join(_run_details(run) for run in runs)


def _run_details(run: Run) -> str:
    facts = {
        "folder": run.folder, "status": run.status, "cause": run.cause, "backend": run.backend,
        "engine": run.engine, "workload": run.workload, "model": run.model, "GPU": run.gpu,
        "device": run.device, "time": run.time, **_memory_facts(run),
    }  # fmt: skip
    blocks = [_definitions({k: v for k, v in facts.items() if v is not None})]
    if run.notes:
        notes = "".join(f"<li>{escape(note)}</li>" for note in run.notes)
        blocks.append(f"<h3>Missing or left out</h3><ul>{notes}</ul>")
    if run.environment:
        blocks.append(f"<h3>Versions</h3>{_definitions(run.environment)}")
    if run.config_text:
        blocks.append(f"<h3>config.yaml</h3><pre>{escape(run.config_text)}</pre>")
    if not run.completed and (tail := run.log_tail()):
        blocks.append(f"<h3>Last lines of run.log</h3><pre>{escape(tail)}</pre>")
    return (
        f'<details class="facts-of-run"{of_run(run)}><summary>{escape(run.name)}</summary>'
        f"{''.join(blocks)}</details>"
    )


def _memory_facts(run: Run) -> dict[str, str | None]:
    """The sizes that a run was set up with."""
    sizes = {"KV budget B": "kv_budget_bytes", "weights": "weights_bytes",
             "profiled activation peak": "activation_peak_bytes"}  # fmt: skip
    said: dict[str, str | None] = {
        name: f"{value / q.GIB:,.2f} GiB"
        for name, key in sizes.items()
        if (value := run.number(key)) is not None
    }
    per_token = run.number("kv_bytes_per_token")
    said["KV a token"] = None if per_token is None else f"{per_token:,.0f} bytes"
    calls = run.summary.get("allocator")
    if isinstance(calls, dict) and isinstance(calls.get("driver_calls"), dict):
        said["driver calls"] = _flat(calls["driver_calls"]) or "none"
    return said


def _definitions(facts: Mapping[str, Any]) -> str:
    items = "".join(
        f"<dt>{escape(str(key))}</dt><dd>{escape(_said(value))}</dd>"
        for key, value in facts.items()
    )
    return f'<dl class="facts">{items}</dl>'


def _flat(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}: {_said(value)}" for key, value in values.items())


def _said(value: Any) -> str:
    """A value of a file as text; floats with no more digits than anyone reads."""
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
