"""What every strategy must do, whatever it does: run by tests on host memory and, through a
process of its own, on the virtual GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.base import Backend, Demand, KvLayout, TokenIds
from backends.bucketed import Bucketed
from backends.contiguous import Contiguous
from backends.paged import Paged
from backends.paged_prefix import PagedPrefix
from backends.paged_radix import PagedRadix
from backends.vmm import Vmm

MAX_MODEL_LEN = 512
LAYERS = 2
TOKEN_BYTES = 2 * LAYERS * 4096  # K and V of 4 KiB a layer

STRATEGIES: dict[str, Callable[[], Backend]] = {
    "contiguous_max": lambda: Contiguous(reserve="max"),
    "contiguous_max_sequence": lambda: Contiguous(reserve="max", layout="sequence"),
    "contiguous_pow2": lambda: Contiguous(reserve="pow2"),
    "contiguous_oracle": lambda: Contiguous(reserve="oracle"),
    "contiguous_grow": lambda: Contiguous(reserve="grow"),
    "buddy_max": lambda: Contiguous(reserve="max", arena="buddy"),
    "buddy_pow2": lambda: Contiguous(reserve="pow2", arena="buddy"),
    "buddy_oracle": lambda: Contiguous(reserve="oracle", arena="buddy"),
    "bucketed": lambda: Bucketed(),
    "bucketed_own": lambda: Bucketed(buckets=[48, 100, 333]),
    "paged_prefix": lambda: PagedPrefix(),
    "paged_prefix_8": lambda: PagedPrefix(block_size=8, watermark=0.1),
    "paged_radix": lambda: PagedRadix(),
    "paged_radix_1": lambda: PagedRadix(block_size=1, watermark=0.1),
    "paged_radix_whole": lambda: PagedRadix(partial_blocks=False),
    "paged": lambda: Paged(),
    "paged_1": lambda: Paged(block_size=1),
    "paged_watermark": lambda: Paged(block_size=32, watermark=0.1),
    "vmm": lambda: Vmm(),
    "vmm_unmap": lambda: Vmm(reclaim="unmap"),
    "vmm_sequence": lambda: Vmm(layout="sequence"),
    "vmm_sequence_unmap": lambda: Vmm(layout="sequence", reclaim="unmap"),
}

# The second budget is no whole number of anything: slots, blocks, pages.
BUDGETS = (64 << 20, (41 << 20) + 12_345)


def started(name: str, budget: int, device: str) -> Backend:
    """A strategy with its memory."""
    backend = STRATEGIES[name]()
    layout = KvLayout(
        layers=LAYERS,
        token_bytes=TOKEN_BYTES,
        max_model_len=MAX_MODEL_LEN,
        budget_bytes=budget,
        device=device,  # type: ignore[arg-type]
    )
    backend.start(layout)
    return backend


# What to do next: a new sequence of some prompt and output, tokens for one, or the end of one.
steps = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.integers(1, 300), st.integers(1, 200)),
        st.tuples(st.just("extend"), st.integers(0, 20), st.integers(1, 60)),
        st.tuples(st.just("fork"), st.integers(0, 20), st.integers(0, 3**3 - 1)),
        st.tuples(st.just("free"), st.integers(0, 20), st.just(0)),
    ),
    max_size=40,
)


def check_random_life(name: str, device: str, examples: int) -> None:
    """Random reserves, extends and frees keep the books right; freeing all restores the start."""

    @settings(max_examples=examples, deadline=None, database=None)
    @given(steps=steps, budget=st.sampled_from(BUDGETS))
    def life(steps: list[tuple[str, int, int]], budget: int) -> None:
        backend = started(name, budget, device)
        empty = backend.usage()
        model = _Model()
        for number, (action, first, second) in enumerate(steps):
            getattr(model, action)(backend, number, first, second)
            _check(backend, budget, model)
        for sequence in list(model.slots):
            backend.free(sequence, model.tokens[sequence])
        usage = backend.usage()
        assert usage._replace(cached=0, free=usage.cached + usage.free) == empty
        assert usage.cached == 0 or backend.caches_prefixes

    life()


class _Model:
    """What the sequences of a life should hold, by the words of the contract alone."""

    def __init__(self) -> None:
        self.slots: dict[int, int] = {}
        self.tokens: dict[int, int] = {}
        self.demand: dict[int, Demand] = {}
        self.branches: dict[int, int] = {}

    def reserve(self, backend: Backend, number: int, prompt: int, output: int) -> None:
        demand = Demand(prompt, output, _token_ids(number, output), branches=1 + number % 3)
        hold = backend.reserve(number, max(1, prompt // 2), prompt, demand)
        if hold is None:
            assert self.slots or not backend.fits(Demand(MAX_MODEL_LEN, 1, branches=3))
            return
        assert prompt // 2 <= hold.slots <= (MAX_MODEL_LEN + 64) * demand.branches
        self.slots[number] = hold.slots
        self.tokens[number] = max(1, prompt // 2)
        self.demand[number] = demand
        self.branches[number] = 1

    def extend(self, backend: Backend, number: int, which: int, more: int) -> None:
        sequence = self._pick(which)
        if sequence is not None:
            self._extend(backend, sequence, more, None)

    def fork(self, backend: Backend, number: int, which: int, choice: int) -> None:
        """Into all the branches that were asked for, or a step of beam search."""
        sequence = self._pick(which)
        if sequence is None:
            return
        now = self.branches[sequence]
        children = range(self.demand[sequence].branches)
        self._extend(backend, sequence, 1, [choice // 3**child % 3 % now for child in children])

    def _extend(
        self, backend: Backend, sequence: int, more: int, parents: list[int] | None
    ) -> None:
        final = min(self.demand[sequence].final_tokens, MAX_MODEL_LEN)
        written = self.tokens[sequence]
        tokens = max(written, min(written + more, final))
        hold = backend.extend(sequence, tokens, parents)
        if hold is None:
            return
        branches = self.branches[sequence] = len(parents or range(self.branches[sequence]))
        assert tokens * branches <= hold.slots
        moved = hold.slots > self.slots[sequence] and backend.block_tokens is None
        forked = branches - len(set(parents or range(branches)))
        assert (hold.copied_bytes > 0) == (hold.copies > 0)
        assert moved or forked or not hold.copied_bytes
        assert hold.copied_bytes <= (branches * hold.slots if moved else forked * written) * (
            TOKEN_BYTES * (backend.block_tokens or 1)
        )
        self.slots[sequence], self.tokens[sequence] = hold.slots, tokens

    def free(self, backend: Backend, number: int, which: int, unused: int) -> None:
        sequence = self._pick(which)
        if sequence is not None:
            backend.free(sequence, self.tokens[sequence])
            for books in (self.slots, self.tokens, self.demand, self.branches):
                del books[sequence]

    def _pick(self, which: int) -> int | None:
        return sorted(self.slots)[which % len(self.slots)] if self.slots else None


def _token_ids(number: int, output: int) -> TokenIds:
    """Prompts of three families, alike up to a length of their own."""
    alike = 4 * output
    ids = [number % 3] * alike + [1000 + number] * (2 * MAX_MODEL_LEN)
    return lambda start, stop: b"".join(i.to_bytes(4, "little") for i in ids[start:stop])


def _check(backend: Backend, budget: int, model: _Model) -> None:
    backend.check_integrity()
    usage = backend.usage()
    assert min(usage) >= 0, usage
    assert usage.shared == 0 or backend.block_tokens is not None
    assert usage.held + usage.shared == sum(model.slots.values()) * TOKEN_BYTES
    assert usage.held + usage.rounding + usage.cached + usage.free == budget, usage


def on_virtual_gpu(payload: dict[str, Any]) -> None:
    """A job: the random life of one strategy in PyTorch's caching allocator."""
    check_random_life(payload["strategy"], "cuda", payload["examples"])
