"""A fit as a workload: the section that runs, and the file that holds it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import yaml

from bench.traffic.fit.choice import Choice, choose
from bench.traffic.fit.gaps import ArrivalFit
from bench.traffic.fit.target import FITTED, Column, Ints
from bench.traffic.fit.trace import Trace

GENERATED = "workloads.generated.GeneratedWorkload"
SINGLE_TURN = "workloads.kinds.single.SingleTurn"
WIDTH = 100


class Part(NamedTuple):
    """Requests whose prompts are of one range of lengths: their share of all, and the fits."""

    share: float
    prompt: Choice
    output: Choice


def fit_parts(trace: Trace, number: int) -> list[Part]:
    """One part, or about `number` of like size by the length of the prompt: within a part prompts
    and outputs are drawn independently."""
    inner = np.arange(1, number) / number
    edges = np.unique(np.quantile(trace.prompts, inner, method="inverted_cdf"))
    belongs = np.searchsorted(edges, trace.prompts)
    masks = [belongs == place for place in np.unique(belongs)]
    prompts, outputs = _marks(trace.prompts), _marks(trace.outputs)
    return [
        Part(
            float(mask.mean()),
            choose(Column.of(trace.prompts[mask], prompts)),
            choose(Column.of(trace.outputs[mask], outputs)),
        )
        for mask in masks
    ]


def _marks(lengths: Ints) -> list[int]:
    """Where the whole is judged."""
    whole = Column.of(lengths)
    return [whole.quantile(share) for share in FITTED.values()]


def section(name: str, trace: Trace, arrivals: ArrivalFit, parts: list[Part]) -> dict[str, Any]:
    """As many requests as the trace has turns, at its mean rate of turns, a kind for each part."""
    rate_rps = arrivals.rate_rps
    if rate_rps is not None:
        rate_rps = float(f"{rate_rps * len(trace.prompts) / len(trace.times_ns):.6g}")
    names = [name] if len(parts) == 1 else [f"{name}_{n}" for n in range(1, len(parts) + 1)]
    return {
        "_target_": GENERATED,
        "name": name,
        "rate_rps": rate_rps,
        "num_requests": len(trace.prompts),
        "duration_s": None,
        "max_total_tokens": int(trace.totals.max()),
        "arrivals": arrivals.chosen.settings,
        "kinds": {kind: _kind(part) for kind, part in zip(names, parts, strict=True)},
    }


def _kind(part: Part) -> dict[str, Any]:
    return {
        "_target_": SINGLE_TURN,
        "share": part.share,
        "prompt": part.prompt.chosen.candidate.settings,
        "output": part.output.chosen.candidate.settings,
    }


def file_text(settings: dict[str, Any], trace: Trace) -> str:
    """`conf/workload/NAME.yaml`; docs/preview.md says how it was found."""
    requests = f"{len(trace.prompts):,} requests"
    head = f"# Fitted to {trace.name} ({requests}) by `fragbench workload fit=...`.\n"
    return head + yaml.dump(settings, Dumper=_Dumper, sort_keys=False, width=WIDTH)


class _Dumper(yaml.SafeDumper):
    """Tables of quantiles in a few lines, not one each."""


def _mapping(dumper: _Dumper, mapping: dict[Any, Any]) -> yaml.Node:
    numbers = all(isinstance(key, float) for key in mapping)
    return dumper.represent_mapping("tag:yaml.org,2002:map", mapping, flow_style=numbers)


_Dumper.add_representer(dict, _mapping)
