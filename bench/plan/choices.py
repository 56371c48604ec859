"""What other settings would buy: the part of a plan's page that is about choices."""

from __future__ import annotations

from typing import Any

from bench.plan.layouts import BLOCKS, BUCKETS, LAYOUTS, RESERVED
from bench.plan.page import Section
from bench.words import UNDEFINED, gib, percent, whole

Plan = dict[str, Any]
SHORT = {RESERVED: "reserved", BUCKETS: "in buckets", BLOCKS: "in blocks"}
AT_ONCE = "Sequences at once, with max_model_len reserved, in buckets and in blocks:"
_YES_NO = {True: "fit", False: "do not fit", None: UNDEFINED}


def live_tokens(each: dict[str, Any]) -> str:
    """Live tokens of a division, or that there is none."""
    return "does not fit" if each["refused"] else whole(each["live_tokens"])


def gains(plan: Plan) -> Section:
    """FP8 KV and another max_model_len."""
    together = plan["together"]
    rows = [
        [
            each["setting"],
            percent(each["served_share"]),
            live_tokens(each),
            *(whole(each["sequences"][layout]) for layout in LAYOUTS),
            *([_YES_NO[each["all_fit_at_once"]]] if together else []),
        ]
        for each in plan["gains"]
    ]
    all_of_them = [f"all {together['requests']:,} at once"] if together else []
    return Section(
        "What FP8 KV and another max_model_len would buy",
        f"tokens {plan['budget']['how']}, sequences modelled",
        [AT_ONCE],
        ("setting", "requests served", "live tokens", *SHORT.values(), *all_of_them),
        rows,
        [
            "A shorter max_model_len buys sequences where it is reserved, and activations where "
            "prompts are computed whole; blocks hold what is there, whatever it is."
        ],
    )


def weights(plan: Plan) -> Section:
    """Weights of fewer bytes."""
    rows = [
        [
            each["setting"],
            gib(each["weights_bytes"]),
            live_tokens(each),
            *(percent(each["waste_share"][layout]) for layout in LAYOUTS),
        ]
        for each in plan["weights"]
    ]
    return Section(
        "Smaller weights are capacity, not a cure for fragmentation",
        f"tokens {plan['budget']['how']}, waste modelled",
        ["Share of what is held that is no live token, with max_model_len reserved, in buckets and "
         "in blocks:"],
        ("setting", "weights, GiB", "live tokens", *SHORT.values()),
        rows,
        [_growth(plan)],
    )  # fmt: skip


def _growth(plan: Plan) -> str:
    """What the budget does with smaller weights, against what waste does."""
    is_set = plan["kv_budget"] is not None
    budget = "The budget stays as kv_budget sets it" if is_set else "The budget grows"
    return f"{budget}; the share of it that a layout wastes is what the lengths make it."


def parts(plan: Plan) -> Section | None:
    """An endpoint a kind; None where there is one kind."""
    split = plan["parts"]
    if split is None:
        return None
    rows = [
        [
            kind or "unnamed",
            percent(each["share"]),
            whole(each["max_model_len"]),
            live_tokens(each),
            *(whole(each["sequences"][layout]) for layout in LAYOUTS),
            whole(each["max_live_tokens"]),
            whole(each["max_num_seqs"]),
        ]
        for kind, each in split["kinds"].items()
    ]
    saved = split["saved_share"]
    return Section(
        "An endpoint for each kind of traffic, each on a card of its own",
        split["how"],
        [AT_ONCE],
        ("kind", "of requests", "max_model_len", "live tokens", *SHORT.values(), "max_live_tokens",
         "max_num_seqs"),
        rows,
        [
            f"For the same requests the parts hold {percent(saved[RESERVED])} less where "
            f"max_model_len is reserved, {percent(saved[BUCKETS])} less in buckets and "
            f"{percent(saved[BLOCKS])} less in blocks; in return weights are there "
            f"{len(split['kinds'])} times, {gib(split['weights_bytes_more'])} GiB more."
        ],
    )  # fmt: skip
