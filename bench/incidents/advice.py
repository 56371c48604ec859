"""What to change and what would not help, by layer, with the numbers that say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from bench.incidents.episodes import of_kv
from bench.incidents.followed import followed
from bench.incidents.rules import BLOCK_TOKENS, NOT_KNOWN, Layer
from bench.report.results import Run
from bench.words import mib, percent, share

ROLES = {
    Layer.CAPACITY: "application",
    Layer.KV_POLICY: "inference",
    Layer.ALLOCATOR: "platform",
    Layer.WORKSPACE: "inference",
}
"""Who owns a layer: the application asks for tokens, the inference team divides the memory and lays
KV out, the platform sets up the allocator and its processes."""

NEARLY_ALL = 0.9
"""Of the budget, from which on live tokens leave a better policy little to win."""


LEAST_UTILIZATION = 0.01
"""That can be advised, in hundredths."""


class Advice(NamedTuple):
    """Sentences, the first the most useful."""

    change: list[str]
    no_help: list[str]


def advice(layer: str, found: Mapping[str, Any], run: Run) -> Advice:
    """For one layer of a run's incidents, as bench.incidents.episodes counts them."""
    if layer == NOT_KNOWN:
        known = "Run again with a newer version and device=virtual or device=cuda: nothing here "
        return Advice([f"{known}says which layer it is."], [])
    return _ADVICE[Layer(layer)](found, run)


def live_share(found: Mapping[str, Any]) -> float | None:
    """Live tokens of the KV budget, at the median incident."""
    return share(found["median"]["token_states_bytes"], found["median"]["kv_budget_bytes"])


def _free(found: Mapping[str, Any]) -> str:
    """What was there, at the median incident."""
    return mib(found["median"]["available_bytes"])


def _sought(found: Mapping[str, Any]) -> str:
    """What was needed of it: the buffers of a KV request are asked for whole."""
    return mib(found["median"]["wanted_bytes" if of_kv(found) else "needed_bytes"])


def _capacity(found: Mapping[str, Any], run: Run) -> Advice:
    if not of_kv(found):
        return _card_capacity(found, run)
    short = found["lacking_tokens"]
    least = f", {short:,} tokens more in the worst case" if short and short > 0 else ""
    limits = followed(run, "engine.max_live_tokens", "engine.max_num_seqs", "max_model_len")
    cards = followed(run, "a larger gpu", "more tensor_parallel")
    smaller = followed(
        run,
        "kv_dtype=fp8 holds twice the tokens of fp16",
        "weight_dtype=fp8 or int4 leaves more of the card",
    )
    return Advice(
        [
            f"Admit fewer tokens ({limits}), or give KV memory more room{least}: {cards}.",
            f"Make tokens or weights smaller: {smaller}.",
        ],
        [
            "Allocator settings, emptying the cache and restarts: all free memory in one piece "
            "would still be too little.",
            _other_layouts(found),
        ],
    )


def _other_layouts(found: Mapping[str, Any]) -> str:
    median = found["median"]
    blocks, budget = median["token_blocks_bytes"], median["kv_budget_bytes"]
    tails = share(blocks - median["token_states_bytes"], budget) if blocks is not None else None
    return (
        f"Another layout of KV memory: live tokens are {percent(live_share(found))} of the budget, "
        f"and in blocks of {BLOCK_TOKENS} those that were to come do not fit in the rest; smaller "
        f"blocks would win the tails of the last ones at most, {percent(tails)}."
    )


def _card_capacity(found: Mapping[str, Any], run: Run) -> Advice:
    sought, free = _sought(found), _free(found)
    cards = followed(run, "a larger gpu", "more tensor_parallel", "weight_dtype=fp8 or int4")
    return Advice(
        [
            "Make steps smaller (a lower engine.token_budget with engine.prefill=chunked, a "
            f"shorter max_model_len), or the card larger: {cards}."
        ],
        [
            f"Less KV memory, another layout of it, or allocator settings: {sought} were needed, "
            f"{free} free, and all KV memory beside that is too little."
        ],
    )


def _kv_policy(found: Mapping[str, Any], run: Run) -> Advice:
    median = found["median"]
    terms = {name: median[f"{name}_bytes"] or 0 for name in ("reservation", "internal", "rounding")}
    largest = max(terms, key=lambda name: terms[name])
    smaller = None
    if found["worst"].get("kv_pooled"):
        smaller = followed(run, "backend.block_size", "backend.layout=sequence")
    change = [_remedy(largest, terms, median, smaller)]
    live = live_share(found)
    if live is not None and live >= NEARLY_ALL:
        change.append(
            f"Do as for capacity as well: live tokens are {percent(live)} of the budget already, "
            "so that a better policy only postpones this."
        )
    return Advice(
        change,
        [
            "Allocator settings, emptying the cache and restarts: the memory is held by sequences, "
            "not fragmented.",
            "A larger card alone puts it off: of that, too, the same share is held for nothing.",
        ],
    )


def _remedy(
    largest: str, terms: Mapping[str, float], median: Mapping[str, Any], smaller: str | None
) -> str:
    """`smaller` are the settings of a pool's blocks or pages, None where there is no pool."""
    wanted, needed = median["wanted_bytes"] or 0, median["needed_bytes"] or 0
    held = share(terms[largest], median["kv_budget_bytes"])
    if wanted - needed > sum(terms.values()):
        return (
            f"Take memory as tokens come (backend=paged): {mib(wanted)} were wanted for "
            f"{mib(needed)} of tokens, for a copy, a bucket or a reservation."
        )
    if largest == "rounding":
        return (
            f"Take smaller units (blocks, pages; no buddy arena): {percent(held)} of the budget "
            "is rounding."
        )
    what = {"reservation": "waits for tokens that come later", "internal": "is never filled"}
    how = "Reserve less ahead (backend=paged, or backend.reserve=pow2 in place of max)"
    if smaller:
        how = f"Take smaller blocks or pages ({smaller})"
    return f"{how}: {percent(held)} of the budget is held and {what[largest]}."


def _allocator(found: Mapping[str, Any], run: Run) -> Advice:
    pooled = bool(found["worst"].get("kv_pooled"))
    change = [*_padding(run), *_room_for_a_segment(found, run)]
    if not pooled:
        change = [
            "Keep KV memory out of the allocator's way: backend=paged takes one pool at the start.",
            "Give buffers few sizes: backend=bucketed, engine.activation_buckets=true.",
        ]
    if pooled and of_kv(found):
        change = ["Take another arena than buddies (backend.arena=torch), or backend=paged."]
    elif "expandable_segments:True" not in _alloc_conf(run):
        change.insert(
            0,
            "Set alloc_conf=expandable_segments:True, and see with `fragbench replay` whether it "
            "helps here: segments then grow where they are.",
        )
    return Advice(
        change,
        [
            _emptying(found),
            f"A larger card alone: {_free(found)} were free, more than the "
            f"{_sought(found)} that were needed.",
        ],
    )


def _padding(run: Run) -> list[str]:
    padded = followed(run, "engine.activation_buckets=true")
    return [f"Give activations few sizes: {padded}."] if padded else []


def _room_for_a_segment(found: Mapping[str, Any], run: Run) -> list[str]:
    """So much less KV memory that the driver has in one piece what was refused; nothing where what
    KV memory leaves is held back."""
    worst, memory = found["worst"], run.environment.get("memory")
    tried, free = worst.get("tried_bytes"), worst.get("driver_free_bytes")
    held_back = memory.get("held_back_bytes") if isinstance(memory, Mapping) else None
    if of_kv(found) or held_back != 0 or tried is None or free is None or tried <= free:
        return []
    return [_utilization(tried - free, run)]


def _emptying(found: Mapping[str, Any]) -> str:
    if found["median"]["tried_bytes"] is None:
        return "Emptying the cache: PyTorch was not asked, the budget was taken by rounding."
    return "Emptying the cache: PyTorch released all that nothing lives in before it gave up."


def _alloc_conf(run: Run) -> str:
    backend = run.config.get("backend")
    own = backend.get("alloc_conf") if isinstance(backend, Mapping) else None
    return f"{run.config.get('alloc_conf') or ''},{own or ''}"


def _workspace(found: Mapping[str, Any], run: Run) -> Advice:
    short = found["lacking_bytes"]
    return Advice(
        [
            _utilization(short, run),
            "Make steps smaller: a lower engine.token_budget with engine.prefill=chunked, fewer "
            "engine.max_num_seqs.",
        ],
        [
            "More KV memory, or a higher utilization: that is what took the room.",
            "Allocator settings and emptying the cache: all that was free, "
            f"{_free(found)}, is less than the {_sought(found)} that were "
            "needed.",
        ],
    )


def _utilization(short: float | None, run: Run) -> str:
    """Of `kv_budget` the rest of the card is held back but for the share that utilization leaves,
    so that a smaller budget leaves less; what is short beyond what is held back is the budget's."""
    now = run.config.get("utilization")
    memory = run.environment.get("memory")
    plan = memory if isinstance(memory, Mapping) else {}
    usable = plan.get("usable_bytes")
    if not short or not usable or not isinstance(now, int | float):
        return "Leave more of the card beside KV memory: lower utilization."
    wanted, beside = now - short / usable, ""
    if run.config.get("kv_budget") is not None:
        given = usable - (plan.get("held_back_bytes") or 0)
        missing = max(given + short - usable, 0)
        wanted = (now * given - missing) / (given + short - missing)
        if missing:
            beside = f" and a kv_budget lower by {mib(now * given - _hundredths(wanted) * usable)}"
    if wanted < LEAST_UTILIZATION:
        return "Leave more of the card beside KV memory: a larger gpu."
    return (
        f"Leave more of the card beside KV memory: utilization={_hundredths(wanted):g} in place of "
        f"{now:g}{beside} gives it the {mib(short)} that it was short of in the worst case."
    )


def _hundredths(share: float) -> float:
    """Rounded down, so that what is left is enough."""
    return int(100 * share) / 100


_ADVICE: dict[Layer, Callable[[Mapping[str, Any], Run], Advice]] = {
    Layer.CAPACITY: _capacity,
    Layer.KV_POLICY: _kv_policy,
    Layer.ALLOCATOR: _allocator,
    Layer.WORKSPACE: _workspace,
}
