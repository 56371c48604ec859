"""Real compute: whatever the backend does with memory, the tokens are those of a plain forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
import torch
from torch import Tensor

from backends.base import Backend, KvHeads, KvLayout
from backends.bucketed import Bucketed
from backends.contiguous import Contiguous
from backends.paged import Paged
from backends.paged_prefix import PagedPrefix
from backends.paged_radix import PagedRadix
from backends.vmm import Vmm
from bench.engine.engine import Engine
from bench.engine.incidents import IncidentLog
from bench.engine.model_executor import ModelExecutor
from bench.engine.padding import Padding
from bench.engine.real_model import warm_up
from bench.engine.sequence import Sequence
from bench.engine.text import Text
from bench.metrics.accounting import MemoryAccount
from bench.metrics.status import Status
from bench.model.decoder import Attend, Decoder
from bench.model.sampling import Sampler
from bench.model.shape import ModelShape
from bench.model.weights import STORED_DTYPES, random_decoder
from tests.bench.engine.lab import cost_model, limits
from tests.bench.model.plain import causal, causal_over_fp8
from workloads.base import Request

SHAPE = ModelShape(
    name="small", layers=2, hidden_size=64, intermediate_size=96, heads=4, kv_heads=2, head_dim=16,
    vocab_size=128, max_model_len=256,
)  # fmt: skip
# Of which 2 MiB a layer, the smallest pool, hold 512 tokens.
WIDE = replace(SHAPE, heads=2, head_dim=256)
TIES = 1e-4
"""Two logits this close may change places."""

FP8_STEP = 0.01

BACKENDS: dict[str, Callable[[], Backend]] = {
    "contiguous": lambda: Contiguous(),
    "contiguous_grow": lambda: Contiguous(reserve="grow", layout="sequence"),
    "buddy_pow2": lambda: Contiguous(reserve="pow2", arena="buddy"),
    "bucketed": lambda: Bucketed(buckets=[16, 32, 48, 64, 96]),
    "vmm": lambda: Vmm(),
    "vmm_sequence": lambda: Vmm(layout="sequence", reclaim="unmap"),
    "paged": lambda: Paged(),
    "paged_8": lambda: Paged(block_size=8),
    "paged_prefix": lambda: PagedPrefix(),
    "paged_radix": lambda: PagedRadix(),
    "paged_radix_32": lambda: PagedRadix(block_size=32),
}

# Block boundaries, prompts that start alike (0 with 3, 1 with 4), and bucket moves.
PROMPTS = (15, 16, 17, 40, 33, 1, 64, 31, 90, 48)
OUTPUTS = (20, 3, 40, 17, 1, 30, 12, 50, 9, 26)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads of tests that run side by side take each other's cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def prompt(number: int, tokens: int) -> list[int]:
    generator = torch.Generator().manual_seed(number % 3)
    ids: list[int] = torch.randint(SHAPE.vocab_size, (tokens,), generator=generator).tolist()
    return [*ids[:-2], number, 7][-tokens:]


class Served:
    """An engine that computes, and what became of its requests."""

    def __init__(
        self,
        backend: Backend,
        budget: int = 100 << 20,
        *,
        shape: ModelShape = SHAPE,
        kv_dtype: str = "fp32",
        temperature: float = 0.0,
        padding: Padding | None = None,
        **changes: Any,
    ) -> None:
        self.decoder = random_decoder(shape, torch.float32, seed=1)
        heads = KvHeads(shape.kv_heads, shape.head_dim, STORED_DTYPES[kv_dtype])
        token_bytes = shape.kv_bytes_per_token(kv_dtype, 1)
        backend.start(KvLayout(shape.layers, token_bytes, 256, budget, "cpu", heads))
        usage = backend.usage()
        warm_up(self.decoder, backend, "cpu", 256, longest_step=100)
        assert backend.usage() == usage
        backend.check_integrity()
        self.sampler = Sampler(temperature, seed=5)
        executor = ModelExecutor(self.decoder, backend, self.sampler, cost_model(), "cpu", padding)
        self.ended: list[Status] = []
        self.backend = backend
        self.engine = Engine(
            backend,
            executor,
            limits(**changes),
            MemoryAccount(token_bytes, budget),
            IncidentLog(dict),
            256,
            lambda sequence, status, cause, end_s: self.ended.append(status),
            lambda request: Text(prompt(request.request_id, request.prompt_tokens)),
        )
        self.sequences: list[Sequence] = []

    def serve(self, *, longer: int = 1, **more: Any) -> None:
        for number, (tokens, output) in enumerate(zip(PROMPTS, OUTPUTS, strict=True)):
            request = Request(number, 0.0, tokens, longer * output, **more)
            self.sequences.append(self.engine.add(request, 0.0))
        now = 0.0
        while not self.engine.idle:
            step = self.engine.step(now)
            now = now if step is None else step.end_s
            self.backend.check_integrity()
        assert self.ended == [Status.COMPLETED] * len(PROMPTS)


@torch.inference_mode()
def plain_logits(decoder: Decoder, ids: list[int], attend: Attend = causal) -> Tensor:
    """After each token of one sequence, computed at once, without a cache."""
    tokens = torch.tensor(ids)
    positions = torch.arange(len(ids))
    return decoder.logits(tokens, positions, positions, attend)


def behind_the_best(served: Served, attend: Attend = causal) -> list[float]:
    """By how much each token's logit is less than the best of a plain forward pass."""
    gaps = []
    for sequence in served.sequences:
        assert sequence.text is not None
        for ids in sequence.text.branches:
            logits = plain_logits(served.decoder, list(ids), attend)
            for place in range(sequence.request.prompt_tokens, len(ids)):
                row = logits[place - 1]
                gaps.append(float(row.max() - row[ids[place]]))
    return gaps


def check_greedy(served: Served) -> None:
    assert max(behind_the_best(served)) <= TIES


@pytest.mark.parametrize("prefill", ["whole", "chunked"])
@pytest.mark.parametrize("name", BACKENDS)
def test_greedy_tokens_are_those_of_a_plain_forward_pass(name: str, prefill: str) -> None:
    budget = 256 if prefill == "whole" else 40
    served = Served(BACKENDS[name](), prefill=prefill, token_budget=budget)
    served.serve()
    check_greedy(served)


@pytest.mark.parametrize("name", ["bucketed", "contiguous", "paged"])
def test_tokens_that_pad_static_shapes_change_nothing(name: str) -> None:
    served = Served(BACKENDS[name](), padding=Padding(256 + 16, 16))
    served.serve()
    check_greedy(served)


def test_a_static_batch_computes_its_finished_rows_again() -> None:
    served = Served(Contiguous(), batching="static")
    served.serve()
    check_greedy(served)


@pytest.mark.parametrize("name", BACKENDS)
def test_fp8_kv_gives_what_a_plain_forward_pass_over_fp8_does(name: str) -> None:
    """Where K or V lies between two codes, the last bit of a sum decides: hence the tolerance,
    which tokens of other K and V would break."""
    served = Served(BACKENDS[name](), kv_dtype="fp8")
    served.serve()
    gaps = behind_the_best(served, causal_over_fp8)
    assert max(gaps) <= FP8_STEP
    assert sum(gap > TIES for gap in gaps) <= 0.05 * len(gaps)


@pytest.mark.parametrize("branches", [1, 2])
@pytest.mark.parametrize("name", ["bucketed", "paged", "paged_8", "paged_prefix", "paged_radix"])
def test_also_when_memory_runs_out_and_requests_are_computed_again(
    name: str, branches: int
) -> None:
    served = Served(BACKENDS[name](), 4 << 20, shape=WIDE)
    served.serve(branches=branches, longer=4)
    assert served.engine.preemptions > 0
    check_greedy(served)


@pytest.mark.parametrize("name", BACKENDS)
def test_samples_and_beams_say_what_a_plain_forward_pass_draws(name: str) -> None:
    """Every branch's last token was drawn from the logits of the text before it: of samples always,
    of beams from the step before their last fork on."""
    served = Served(BACKENDS[name](), temperature=1.5)
    served.serve(branches=3)
    for sequence in served.sequences:
        assert sequence.text is not None
        assert len(sequence.text.branches) == 3
        for branch, ids in enumerate(sequence.text.branches):
            logits = plain_logits(served.decoder, list(ids))
            for place in range(sequence.request.prompt_tokens, len(ids)):
                drawn = served.sampler._draw(logits[place - 1], _Place(sequence.id, place), branch)
                assert drawn == ids[place], (sequence.id, branch, place)


class _Place:
    """As the sampler sees a sequence of `known` tokens."""

    branches = width = 3
    temperature = seed = None

    def __init__(self, number: int, known: int) -> None:
        self.id = number
        self.known = known


@pytest.mark.parametrize("name", BACKENDS)
def test_beams_copy_and_share_what_their_parents_wrote(name: str) -> None:
    served = Served(BACKENDS[name]())
    served.serve(branches=3, survivors=lambda: cycle([(0, 0, 2), (1, 1, 1), (2, 0, 1)]))
    check_greedy(served)
