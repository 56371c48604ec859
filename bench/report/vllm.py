"""The report's table of vLLM: how it was started, and what it counted beside what was followed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from bench.report.quantities import GIB
from bench.report.results import Run
from bench.report.sections import runs_section
from bench.report.tables import Footnotes

MIB = 1 << 20
NO_CACHE = "no prefix caching"


@dataclass(frozen=True)
class Counted:
    """A number that is there twice, by its keys in a summary: counted by following vLLM, and by
    vLLM itself, which may `lag`."""

    followed: tuple[str, ...]
    own: str
    why_undefined: str
    lags: bool = False


STARTED = {
    "version": "of vLLM",
    "mode": "vllm.mode: eager, graphs or compiled",
    "KV blocks": "vLLM's num_gpu_blocks; one of them is its null block",
    "activations, GiB": "the peak that it profiled, for which it left room",
    "graph pool, MiB": "reserved in the private pools of CUDA graphs once they are captured; below "
    "it how many there are, and what vLLM had set aside for them",
    "start-up, s": "wall time: loading, profiling, compiling, capturing",
}
COUNTED = {
    "preemptions": Counted(("preemptions",), "num_preemptions", "not recorded", lags=True),
    "tokens looked up": Counted(("prefix_cache", "query_tokens"), "prefix_cache_queries", NO_CACHE),
    "tokens found": Counted(("prefix_cache", "hit_tokens"), "prefix_cache_hits", NO_CACHE),
}
MEANINGS = STARTED | {
    "preemptions, tokens looked up, tokens found": "as they were followed, and below as vLLM's own "
    "counters have them: num_preemptions, prefix_cache_queries, prefix_cache_hits; admissions "
    "after a preemption are in neither of the last two. vLLM counts a preemption with the next "
    "token of its request, so never where there was none"
}


def vllm_html(runs: Sequence[Run]) -> str:
    """One table a workload; empty without a run of engine=vllm that began."""
    began = [run for run in runs if run.summary.get("vllm")]
    if not began:
        return ""
    columns = (*STARTED, *COUNTED)
    return runs_section("vllm", "vLLM by its own account", began, columns, _cells, MEANINGS)


def _cells(run: Run, footnotes: Footnotes) -> str:
    own = run.summary["vllm"]
    texts = [f"<td>{escape(str(own.get(key)))}</td>" for key in ("version", "mode")]
    numbers = [
        _number(run.number("vllm", "num_gpu_blocks"), "{:,.0f}", footnotes),
        _number(_per(GIB, run.number("activation_peak_bytes")), "{:,.2f}", footnotes),
        _graph_pool(run, footnotes),
        _number(run.number("vllm", "start_s"), "{:,.0f}", footnotes),
    ]
    return "".join([*texts, *numbers, *(_twice(run, each, footnotes) for each in COUNTED.values())])


def _number(value: float | None, form: str, footnotes: Footnotes, below: str = "") -> str:
    if value is None:
        return f"<td>\N{EN DASH}<sup>{footnotes.mark('not recorded')}</sup></td>"
    return f'<td data-value="{value:.9g}">{form.format(value)}{below}</td>'


def _per(unit: int, nbytes: float | None) -> float | None:
    return None if nbytes is None else nbytes / unit


def _graph_pool(run: Run, footnotes: Footnotes) -> str:
    graphs, estimate = run.number("vllm", "graphs"), run.number("vllm", "graphs_estimate_bytes")
    said = [f"{graphs:,.0f} graphs"] if graphs else []
    said += [f"estimated {estimate / MIB:,.0f}"] if estimate else []
    below = f"<small>{'; '.join(said)}</small>" if said else ""
    pool = _per(MIB, run.number("vllm", "graph_pool_bytes"))
    return _number(pool, "{:,.0f}", footnotes, below)


def _twice(run: Run, counted: Counted, footnotes: Footnotes) -> str:
    followed, own = run.number(*counted.followed), run.number("vllm_counted", counted.own)
    if followed is None:
        return f"<td>\N{EN DASH}<sup>{footnotes.mark(counted.why_undefined)}</sup></td>"
    said = "not recorded" if own is None else f"{own:,.10g}"
    fits = own is None or own == followed or (counted.lags and own < followed)
    differs = "" if fits else ' class="bad"'
    return (
        f'<td data-value="{followed:.9g}"{differs}>{followed:,.10g}<small>vLLM: {said}</small></td>'
    )
