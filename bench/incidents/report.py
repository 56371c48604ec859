"""The report that a team would file: what, when, which layer, the evidence, what to change, what
would not help, and who owns it. Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.incidents.advice import ROLES, advice, live_share
from bench.incidents.episodes import of_kv
from bench.incidents.rules import BLOCK_TOKENS, NOT_KNOWN, Layer
from bench.report.results import Run
from bench.words import UNDEFINED, first_sentences, mib, percent, seconds, share

KINDS = {
    "reserve_refused": "request|s| waited at admission",
    "extend_refused": "time|s| a sequence could not grow",
    "activation_refused": "step|s| could not allocate activations",
    "source_refused": "wait|s| of fragmentation sources",
}

MEANINGS: dict[str, str] = {
    Layer.CAPACITY: "live tokens really need the memory",
    Layer.KV_POLICY: "reservations, unfilled slots or second copies hold the memory",
    Layer.ALLOCATOR: "enough is free, but not in one piece or in segments that cannot be released",
    Layer.WORKSPACE: "KV memory took the headroom that something beside it needed",
    NOT_KNOWN: "the incidents do not say",
}

READ = ("summary.json", "config.yaml", "environment.json", "incidents.jsonl")

Owners = Mapping[str, str]
"""The names of the roles platform, inference and application."""


def report(found: Sequence[tuple[Run, Mapping[str, Any]]], owners: Owners) -> str:
    """All runs with incidents, one after another, and the names of those without."""
    parts = ["\n".join(_run(run, counts, owners)) for run, counts in found if counts["incidents"]]
    quiet = [counts for _, counts in found if not counts["incidents"]]
    for said, which in (
        ("No allocation failed in", [each for each in quiet if each["ended"] and each["told"]]),
        ("No allocation failed so far in", [each for each in quiet if _goes_on(each)]),
        ("Not known for want of incidents.jsonl:", [each for each in quiet if not each["told"]]),
    ):
        if which:
            parts.append(f"{said} {', '.join(counts['run'] for counts in which)}.\n")
    return "\n".join(parts)


def _goes_on(counts: Mapping[str, Any]) -> bool:
    return bool(counts["told"]) and not counts["ended"]


def _run(run: Run, counts: Mapping[str, Any], owners: Owners) -> Iterator[str]:
    layers: Mapping[str, Any] = counts["layers"]
    yield f"# Allocation failures in {counts['run']}"
    yield ""
    yield f"- **What:** {_what(counts)}"
    yield f"- **Where:** {_where(counts)}"
    yield f"- **When:** {_when(counts)}"
    yield f"- **Layer:** {_which(counts, owners)}"
    notes = [note for note in run.notes if note.startswith(READ)]
    if notes:
        yield f"- **Files:** {'; '.join(notes)}"
    yield ""
    yield "| layer | incidents | refusals | owner | meaning |"
    yield "| --- | ---: | ---: | --- | --- |"
    for layer, of_layer in layers.items():
        yield (
            f"| {layer} | {of_layer['incidents']:,} | {of_layer['refusals']:,} | "
            f"{owner(layer, owners) or UNDEFINED} | {MEANINGS[layer]} |"
        )
    yield ""
    for layer, of_layer in layers.items():
        yield from _layer(layer, of_layer, run, owners)


def owner(layer: str, owners: Owners) -> str | None:
    """Who owns a layer; nobody does where it is not known."""
    return None if layer == NOT_KNOWN else owners[ROLES[Layer(layer)]]


def _what(counts: Mapping[str, Any]) -> str:
    kinds = counts["kinds"].items()
    said = ", ".join(_times(number, KINDS.get(kind, kind)) for kind, number in kinds)
    ended = {
        "completed": "The run completed.",
        "incomplete": "The run goes on, or was stopped before it ended.",
    }
    why = first_sentences(str(counts["cause"])).rstrip(".")
    how = ended.get(counts["status"], f"The run failed: {why}.")
    numbers = _times(counts["incidents"], "incident|s|"), _times(counts["refusals"], "refusal|s|")
    return f"{', '.join(numbers)}: {said}. {how}"


def _times(number: int, kind: str) -> str:
    """A count with its noun: `|s|` is there where it is not one."""
    return f"{number:,} {kind.replace('|s|', '' if number == 1 else 's')}"


def _where(counts: Mapping[str, Any]) -> str:
    return (
        f"{counts['backend']}, {counts['model']} on {counts['gpu']} (device={counts['device']}, "
        f"time {counts['time']}), workload {counts['workload']}, in {counts['path']}"
    )


def _when(counts: Mapping[str, Any]) -> str:
    first, last, clock = (seconds(counts[f"{name}_s"]) for name in ("first", "last", "clock"))
    rate = counts["incidents_per_hour"]
    often = "" if rate is None or counts["incidents"] < 2 else f", {rate:,.1f} an hour"
    return f"first at {first}, last at {last} of {clock} on the run's clock{often}"


def _which(counts: Mapping[str, Any], owners: Owners) -> str:
    """The commonest layer, and the one that ended the run."""
    layers: Mapping[str, Any] = counts["layers"]
    first = next(iter(layers))
    said = f"{first} in {layers[first]['incidents']:,} of {counts['incidents']:,} incidents"
    who = owner(first, owners)
    said += f" (owner: {who})" if who is not None else ""
    last = [layer for layer, found in layers.items() if found["worst"].get("ended_run")]
    return said + "".join(f"; {layer} where the run ended" for layer in last)


def _layer(layer: str, found: Mapping[str, Any], run: Run, owners: Owners) -> Iterator[str]:
    said = advice(layer, found, run)
    yield f"## {layer}: {MEANINGS[layer]}"
    yield ""
    who = owner(layer, owners)
    if who is not None:
        yield f"- **Owner:** {who}"
    yield f"- **Worst:** {_worst(found['worst'])}"
    if found["worst"].get("error"):
        yield f"- **PyTorch said:** {first_sentences(found['worst']['error'])}"
    yield ""
    yield f"| evidence: median of {found['median_of']} | | in incidents.jsonl |"
    yield "| --- | ---: | --- |"
    for what, value, place in _evidence(layer, found):
        yield f"| {what} | {value} | {place} |"
    yield ""
    yield from _list("What to change", said.change)
    yield from _list("What would not help", said.no_help)


def _list(heading: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"**{heading}**"
        yield ""
        yield from (f"- {line}" for line in lines)
        yield ""


def _worst(incident: Mapping[str, Any]) -> str:
    kind = str(incident.get("kind"))
    who = incident.get("request_id", incident.get("source"))
    named = "" if who is None else f" ({'request' if 'request_id' in incident else 'source'} {who})"
    waited = incident.get("waited_s")
    how = [
        f"{mib(incident.get('wanted_bytes'))} wanted",
        _times(incident.get("refusals", 1), "refusal|s|"),
        f"waited {seconds(waited)}" if waited is not None else "",
        f"request {incident['preempted_request']} lost its memory"
        if incident.get("preempted_request") is not None
        else "",
        "the run ended there" if incident.get("ended_run") else "",
    ]
    at = seconds(incident.get("first_s"))
    return f"{kind}{named} at {at}: {', '.join(filter(None, how))}"


def _evidence(layer: str, found: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What, how much, and where it stands."""
    median = found["median"]
    budget = median["kv_budget_bytes"]
    yield "asked for", mib(median["wanted_bytes"]), "wanted_bytes"
    yield "needed", mib(median["needed_bytes"]), "needed_bytes"
    yield "free for it", mib(median["available_bytes"]), _free_place(found)
    yield "active sequences", _number(median["active_sequences"]), "active_sequences"
    live = f"{_number(median['live_tokens'])} ({percent(live_share(found))} of the KV budget)"
    yield "live tokens", live, "live_tokens, token_states_bytes"
    blocks = percent(share(median["token_blocks_bytes"], budget))
    yield f"KV budget: live tokens in blocks of {BLOCK_TOKENS}", blocks, "token_blocks_bytes"
    for term in ("reservation", "internal", "rounding", "cached", "free"):
        value = percent(share(median[f"{term}_bytes"], budget))
        yield f"KV budget: {term}", value, f"{term}_bytes"
    if median["kept_bytes"] is not None:
        kept = mib(median["kept_bytes"])
        yield "allocator: reserved - allocated", kept, "reserved_bytes, allocated_bytes"
    if layer == Layer.ALLOCATOR or not of_kv(found):  # else the budget was what refused
        largest = f"{percent(found['largest_free_share'])} of what was asked for"
        yield "allocator: largest free block", largest, "largest_free_bytes"
    if median["tried_bytes"] is not None:
        yield "allocator: asked the driver for", mib(median["tried_bytes"]), "tried_bytes"


def _free_place(found: Mapping[str, Any]) -> str:
    if of_kv(found):
        return "usable_bytes - held_bytes"
    if found["median"]["headroom_left_bytes"] is not None:
        return "headroom_left_bytes"
    return "driver_free_bytes + reserved_bytes - allocated_bytes"


def _number(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:,.0f}"
