"""What a plan says: its figures as questions and answers."""

from __future__ import annotations

from typing import Any

from bench.exercise.wording import counted
from bench.plan.choices import gains, live_tokens, parts, weights
from bench.plan.layouts import BLOCKS, LAYOUTS
from bench.plan.needed import EITHER
from bench.plan.page import Section
from bench.words import gib, percent, whole

Plan = dict[str, Any]
SHARED_PROMPTS = 0.1
"""Of prompt tokens: above it, finding them again is worth a word."""


def sections(plan: Plan) -> list[Section]:
    """The page of plan.json."""
    found = [
        _head(plan),
        _warnings(plan),
        _kv(plan),
        _budget(plan),
        _layouts(plan),
        _limits(plan),
        _headroom(plan),
        _admission(plan),
        gains(plan),
        weights(plan),
        parts(plan),
    ]
    return [section for section in found if section is not None]


def _head(plan: Plan) -> Section:
    gpus = plan["tensor_parallel"]
    on = f"{gpus} x {plan['gpu']}" if gpus > 1 else plan["gpu"]
    traffic = plan["traffic"]
    rate = traffic["rates"]["requests_per_s"]
    came = f"{rate:.3g} requests/s" if rate else "no rate of its own"
    if traffic["users"]:
        came = f"{traffic['users']:,} users"
    return Section(
        f"Plan: {plan['model']} on {on}, workload {plan['workload']}",
        lines=[
            f"Weights {plan['weight_dtype']}, KV {plan['kv_dtype']}, max_model_len "
            f"{plan['layouts']['max_model_len']:,}, utilization {plan['utilization']}, backend "
            f"{plan['backend']}. Nothing was served: drawn were "
            f"{counted(traffic['turns'], 'request')} ({came}, seed {plan['seed']}). Bytes are "
            "those of one GPU."
        ],
    )


def _warnings(plan: Plan) -> Section | None:
    found = plan["warnings"]
    return Section("Warnings", lines=[f"- {line}" for line in found]) if found else None


def _kv(plan: Plan) -> Section:
    kv = plan["kv"]
    return Section(
        "KV bytes a token", kv["how"], [f"{kv['bytes_per_token']:,} bytes = {kv['formula']}."]
    )


def _budget(plan: Plan) -> Section:
    budget, together = plan["budget"], plan["together"]
    rows = [
        ["usable memory of the card", gib(budget["usable_bytes"])],
        ["weights", gib(budget["weights_bytes"])],
        ["workspace", gib(budget["workspace_bytes"])],
        ["peak of activations", gib(budget["activation_peak_bytes"])],
        ["set aside for fragmentation sources", gib(budget["sources_bytes"])],
        ["headroom that utilization leaves", gib(budget["headroom_bytes"])],
        ["KV budget", gib(budget["kv_budget_bytes"])],
    ]
    rows = [row for row in rows if row[1] != "0.00"]
    after = [f"Live tokens that fit: {whole(budget['live_tokens'])}."]
    if budget["pool_tokens"] is not None:
        after = [f"{after[0][:-1]}; the backend can give {budget['pool_tokens']:,} of them."]
    if together:
        fit = {True: "they fit", False: "they do not fit", None: "whether they fit is not known"}
        after.append(
            f"{_all_of(together['requests'])} at once, each at its longest: "
            f"{together['tokens']:,} tokens, {gib(together['bytes'])} GiB: {fit[together['fit']]}."
        )
    return Section("Live-token budget", budget["how"], (), ("", "GiB"), rows, after)


def _all_of(requests: int) -> str:
    return "The one request" if requests == 1 else f"All {requests:,} requests"


def _layouts(plan: Plan) -> Section:
    layouts = plan["layouts"]
    rows = [
        [
            LAYOUTS[layout][1],
            each["backend"],
            whole(each["held_tokens_mean"]),
            percent(each["waste_share"]),
            whole(each["sequences"]),
        ]
        for layout, each in layouts["each"].items()
    ]
    heads = ("layout", "backend", "tokens held a sequence", "waste", "sequences at once")
    lines = [
        f"A running sequence has {whole(layouts['live_tokens_mean'])} live tokens on average; "
        "what each layout holds for it, from the lengths drawn:"
    ]
    return Section("Contiguous or blocks?", layouts["how"], lines, heads, rows, _choice(plan))


def _choice(plan: Plan) -> list[str]:
    """The recommendation, and what it leaves out."""
    layouts, needed = plan["layouts"], plan["layouts"]["needed"]
    wanted = f"Sequences wanted at once: {whole(needed['sequences'])} ({needed['how']})."
    if layouts["recommended"] is None:
        return [wanted, "No recommendation: there is no budget, or no request that is served."]
    said = [
        wanted,
        _recommended(plan),
        "Buffers also lose free memory in pieces that are too small. Buckets are shown and not "
        "recommended: they hold two buffers while they move, and pad every step. A run shows both.",
        *_prefill(plan),
    ]
    if layouts["found_block_share"] > SHARED_PROMPTS:
        said.append(
            f"{percent(layouts['found_block_share'])} of prompt tokens were said before: only "
            "blocks can be found again (backend=paged_prefix), which is not counted above."
        )
    return said


def _recommended(plan: Plan) -> str:
    """The layout, or what would do more than any."""
    layouts = plan["layouts"]
    if layouts["recommended"] != EITHER:
        name, backend = LAYOUTS[layouts["recommended"]][1], layouts["recommended_backend"]
        return f"Recommended: {name} (backend={backend}): {layouts['because']}."
    need = layouts["needed"]["sequences"]
    enough = [
        each["setting"]
        for each in (*plan["gains"], *plan["weights"])
        if need is not None and (each["sequences"][BLOCKS] or 0) >= need
    ]
    way = f"; enough with {' or '.join(enough)}" if enough else ""
    return (
        f"The layout does not decide: {layouts['because']}. Memory is short, and no layout makes "
        f"up for it{way}."
    )


def _prefill(plan: Plan) -> list[str]:
    """Where buffers would compute prompts in another way than was counted with."""
    whole = plan["headroom"]["prefills"]["whole"]["live_tokens"]
    if plan["headroom"]["prefill"] != "chunked" or whole in (None, plan["budget"]["live_tokens"]):
        return []
    return [
        f"All are counted in the {plan['budget']['live_tokens']:,} tokens that fit with chunked "
        f"prompts; whole ones, the default of buffers, leave {whole:,}."
    ]


def _limits(plan: Plan) -> Section:
    limits = plan["limits"]
    return Section(
        "Requests near the limit",
        limits["how"],
        [
            f"At 90 to 100 % of max_model_len={limits['max_model_len']:,}: "
            f"{percent(limits['near_share'])}. Above it, so rejected: "
            f"{percent(limits['too_long_share'])}. Too many branches for "
            f"max_num_seqs={limits['max_num_seqs']:,}: "
            f"{percent(limits['too_many_branches_share'])}. Too long for the budget even alone: "
            f"{percent(limits['never_fits_share'])}."
        ],
    )


def _headroom(plan: Plan) -> Section:
    headroom = plan["headroom"]
    rows = [
        [
            f"{name} prompts" + (" (as configured)" if name == headroom["prefill"] else ""),
            whole(each["largest_step_tokens"]),
            gib(each["activation_peak_bytes"]),
            live_tokens(each),
        ]
        for name, each in headroom["prefills"].items()
    ]
    return Section(
        "Headroom for workspace at peak",
        headroom["how"],
        [
            "What the largest step's activations take beside KV memory, by how prompts are "
            "computed, and the live tokens that it leaves:"
        ],
        ("prefill", "tokens of the largest step", "activations, GiB", "live tokens"),
        rows,
        [
            f"Matrix workspace {gib(headroom['workspace_bytes'])} GiB. Utilization leaves "
            f"{gib(headroom['headroom_bytes'])} GiB to nobody: fragmentation has that much room."
        ],
    )


def _admission(plan: Plan) -> Section:
    limit, fit = plan["admission"], plan["budget"]["live_tokens"]
    if limit["max_live_tokens"] is None:
        lines = ["Not known: there is no budget, or no request that is served."]
    else:
        lines = [
            f"engine.max_live_tokens={limit['max_live_tokens']}: {limit['sequences']:,.1f} "
            f"sequences of {whole(limit['live_tokens'])} live tokens. Each has "
            f"{limit['to_come_tokens']:,.0f} +- {limit['to_come_deviation']:,.0f} tokens still to "
            f"say and {limit['tail_tokens']:,.1f} empty in its last block: in 99 of 100 cases they "
            f"stay within the {fit:,} that fit, though none ends before."
        ]
    return Section("Admission limit in tokens", limit["how"], lines)
