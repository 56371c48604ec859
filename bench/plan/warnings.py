"""What stands in the way of a deployment, a sentence each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bench.gpu import GIB
from bench.words import percent


def warnings(plan: dict[str, Any]) -> list[str]:
    """Of a plan's answers, the gravest first."""
    return [*_memory(plan), *_requests(plan), *_load(plan), *_knowledge(plan)]


def _memory(plan: dict[str, Any]) -> Iterator[str]:
    budget = plan["budget"]
    if budget["refused"]:
        yield f"There is no room for KV: {budget['refused'].rstrip('.')}."
    if budget["backend_refused"]:
        yield f"The backend would not start: {budget['backend_refused']}."


def _requests(plan: dict[str, Any]) -> Iterator[str]:
    limits, together = plan["limits"], plan["together"]
    if limits["rejected_share"]:
        yield (
            f"{percent(limits['rejected_share'])} of the requests would be rejected: they are "
            f"longer than max_model_len={limits['max_model_len']:,}, or have more branches than "
            "engine.max_num_seqs."
        )
    if limits["never_fits_share"]:
        yield (
            f"{percent(limits['never_fits_share'])} of the requests do not fit the budget even "
            f"alone: the longest has {plan['longest_tokens']:,} tokens, the budget "
            f"{plan['budget']['live_tokens']:,}."
        )
    if together and together["fit"] is False:
        yield (
            f"All {together['requests']:,} requests do not fit at once: at their longest they need "
            f"{together['bytes'] / GIB:.2f} GiB."
        )


def _load(plan: dict[str, Any]) -> Iterator[str]:
    live, tokens = plan["traffic"]["live"]["no_prefix_cache"], plan["budget"]["live_tokens"]
    if live["why_null"] and live["why_null"].startswith("more than is served"):
        why = live["why_null"].partition(": ")[2]
        yield f"The rate is beyond what the GPU serves (modelled): {why}."
    if live["kv_tokens"] and tokens and live["kv_tokens"] > tokens:
        yield (
            f"The traffic would keep {live['kv_tokens']:,.0f} tokens alive (modelled), the budget "
            f"holds {tokens:,}: requests will wait or be preempted."
        )


def _knowledge(plan: dict[str, Any]) -> Iterator[str]:
    if plan["budget"]["how"] != "exact":
        yield (
            f"There is no virtual GPU here, so budgets are {plan['budget']['how']}: activations, "
            "workspace and what sources set aside are not taken off."
        )
    if not plan["traffic"]["whole"]:
        yield f"Only the first {plan['traffic']['turns']:,} requests were looked at."
