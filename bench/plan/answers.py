"""A plan's answers: the figures of plan.json (docs/plan.md), each with how it was got."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from bench.model.shape import BYTES_PER_ELEMENT
from bench.plan.admission import admission
from bench.plan.case import WEIGHTS, Case
from bench.plan.division import CONFIGURED, Division
from bench.plan.layouts import LAYOUTS, Held
from bench.plan.needed import needed, recommend

Divisions = Mapping[str, Division]
EXACT, COUNTED, MODELLED = "exact", "counted", "modelled"


def kv(case: Case) -> dict[str, Any]:
    """K and V of one token."""
    model, config = case.config.model, case.config
    element = BYTES_PER_ELEMENT[config.kv_dtype]
    return {
        "how": EXACT,
        "bytes_per_token": model.kv_bytes_per_token(config.kv_dtype, config.tensor_parallel),
        "formula": f"2 x {model.layers} layers x {model.kv_heads} KV heads x {model.head_dim} x "
        f"{element:g} bytes of {config.kv_dtype} / tensor_parallel={config.tensor_parallel}",
    }


def budget(division: Division) -> dict[str, Any]:
    """The card's division."""
    tokens = division.pool_bytes
    return {
        **division._asdict(),
        "live_tokens": division.live_tokens,
        "pool_tokens": None if tokens is None else tokens // division.token_bytes,
    }


def layouts(case: Case, division: Division) -> dict[str, Any]:
    """Contiguous or blocks: what each would hold of this workload, and the recommendation."""
    held = case.held(case.config.max_model_len)
    need = needed(case)
    choice = None
    if held is not None and division.live_tokens is not None:
        choice = recommend(held, division.live_tokens, need.sequences)
    return {
        "how": MODELLED,
        "max_model_len": case.config.max_model_len,
        "live_tokens_mean": held and held.live_mean,
        "each": _each(case, held, division.live_tokens),
        "needed": need._asdict(),
        "recommended": choice and choice.layout,
        "recommended_backend": choice and choice.backend,
        "because": choice and choice.because,
        "found_block_share": case.traffic["prefix"]["found_block_share"],
    }


def _each(case: Case, held: Held | None, live_tokens: int | None) -> dict[str, Any]:
    at_once = sequences(held, live_tokens)
    return {
        layout: {
            "backend": backend,
            "held_tokens_mean": held and held.mean(layout),
            "waste_share": held and held.waste(layout),
            "sequences": at_once[layout],
        }
        for layout, (backend, _) in LAYOUTS.items()
    }


def sequences(held: Held | None, live_tokens: int | None) -> dict[str, int | None]:
    """How many at once on average, of each layout."""
    if held is None or live_tokens is None:
        return dict.fromkeys(LAYOUTS)
    return {layout: held.at_once(layout, live_tokens) for layout in LAYOUTS}


def limits(case: Case, division: Division) -> dict[str, Any]:
    """Requests near max_model_len, above it, and those that never fit the budget."""
    never = None
    if division.live_tokens is not None:
        final = case.served(case.config.max_model_len).final_tokens
        never = float((final > division.live_tokens).sum()) / case.lengths.requests
    return {"how": COUNTED, **case.traffic["limits"], "never_fits_share": never}


def together(case: Case, division: Division) -> dict[str, Any] | None:
    """All requests at once, each at its longest; None where there are more than may run."""
    kept = case.served(case.config.max_model_len)
    running = int(kept.branches.sum())
    if not running or not case.sample.whole or running > case.config.engine.max_num_seqs:
        return None
    tokens = int(kept.final_tokens.sum())
    return {
        "how": division.how,
        "requests": kept.requests,
        "tokens": tokens,
        "bytes": tokens * division.token_bytes,
        "fit": None if division.live_tokens is None else tokens <= division.live_tokens,
    }


def headroom(divisions: Divisions) -> dict[str, Any]:
    """What the largest step needs beside KV memory, and what utilization leaves to nobody."""
    configured = divisions[CONFIGURED]
    keys = ("largest_step_tokens", "activation_peak_bytes", "live_tokens", "refused")
    return {
        "how": configured.how,
        "prefill": configured.prefill,
        "headroom_bytes": configured.headroom_bytes,
        "workspace_bytes": configured.workspace_bytes,
        "prefills": {
            prefill: {key: getattr(divisions[f"prefill={prefill}"], key) for key in keys}
            for prefill in ("whole", "chunked")
        },
    }


def admission_limit(case: Case, division: Division, kind: str | None = None) -> dict[str, Any]:
    """A value for engine.max_live_tokens; null without a budget or a request that is served."""
    length = case.config.max_model_len
    held = case.held(length, kind)
    if held is None or not division.live_tokens:
        return {"how": MODELLED, "max_live_tokens": None}
    found = admission(case.served(length, kind), held, division.live_tokens)
    return {
        "how": MODELLED,
        "max_live_tokens": found.limit_tokens,
        **{key: value for key, value in found._asdict().items() if key != "limit_tokens"},
    }


def gains(case: Case, divisions: Divisions) -> list[dict[str, Any]]:
    """What FP8 KV and another max_model_len would buy, the configuration first."""
    now = case.config.max_model_len
    rows = [_row(case, divisions[CONFIGURED], "as configured", now)]
    if case.config.kv_dtype != "fp8":
        rows.append(_row(case, divisions["kv_dtype=fp8"], "kv_dtype=fp8", now))
    for name, length in case.shorter.items():
        division = divisions[f"max_model_len={name}"]
        rows.append(_row(case, division, f"max_model_len={length}", length))
    return rows


def weights(case: Case, divisions: Divisions) -> list[dict[str, Any]]:
    """What weights of fewer bytes would buy, with the waste of each layout."""
    now = case.config.max_model_len
    return [
        _row(case, divisions[name], name, now) | {"weights_bytes": divisions[name].weights_bytes}
        for name in (f"weight_dtype={dtype}" for dtype in WEIGHTS)
    ]


def _row(case: Case, division: Division, setting: str, max_model_len: int) -> dict[str, Any]:
    held = case.held(max_model_len)
    all_at_once = together(case, division)
    return {
        "setting": setting,
        "how": division.how,
        "served_share": case.served_share(max_model_len),
        "kv_budget_bytes": division.kv_budget_bytes,
        "live_tokens": division.live_tokens,
        "sequences": sequences(held, division.live_tokens),
        "all_fit_at_once": all_at_once and all_at_once["fit"],
        "waste_share": {layout: held and held.waste(layout) for layout in LAYOUTS},
        "refused": division.refused,
    }


def parts(case: Case, divisions: Divisions) -> dict[str, Any] | None:
    """An endpoint for each kind, on a card of its own, against one for all; None for one kind."""
    if not case.kinds:
        return None
    one = case.held(case.config.max_model_len)
    own = {kind: case.held(case.longest(kind), kind) for kind in case.kinds}
    return {
        "how": f"divisions {divisions[CONFIGURED].how}, sequences {MODELLED}",
        "kinds": {kind: _part(case, divisions[f"kind={kind}"], kind) for kind in case.kinds},
        "saved_share": {layout: _saved(one, list(own.values()), layout) for layout in LAYOUTS},
        "weights_bytes_more": (len(case.kinds) - 1) * divisions[CONFIGURED].weights_bytes,
    }


def _part(case: Case, division: Division, kind: str) -> dict[str, Any]:
    length = case.longest(kind)
    held = case.held(length, kind)
    limit = admission_limit(case, division, kind)
    running = limit.get("sequences")
    return {
        "share": case.share(kind),
        "max_model_len": length,
        "live_tokens": division.live_tokens,
        "sequences": sequences(held, division.live_tokens),
        "max_live_tokens": limit["max_live_tokens"],
        "max_num_seqs": None if running is None else max(1, math.floor(running)),
        "refused": division.refused,
    }


def _saved(one: Held | None, own: list[Held | None], layout: str) -> float | None:
    """Share of what one endpoint holds for the same requests that parts do not."""
    if one is None:
        return None
    return 1 - sum(part.held[layout] for part in own if part is not None) / one.held[layout]
