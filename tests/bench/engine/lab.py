"""A small engine on a real backend, for the tests of this folder: what they build and watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from backends.base import Backend, Demand, Hold, TokenIds
from bench.costs import CostModel
from bench.engine.activations import Activations
from bench.engine.engine import Engine, Step
from bench.engine.executor import ModelledExecutor
from bench.engine.incidents import IncidentLog
from bench.engine.scheduler import Limits
from bench.engine.sequence import Sequence as EngineSequence
from bench.metrics.accounting import MemoryAccount
from bench.metrics.status import Status
from bench.model.shape import ModelShape
from bench.packaged import load_constants, load_gpu
from bench.sources.active import Sources
from workloads.base import Request

SHAPE = ModelShape(
    name="tiny",
    layers=2,
    hidden_size=512,
    intermediate_size=2048,
    heads=8,
    kv_heads=8,
    head_dim=64,
    vocab_size=32_000,
    max_model_len=512,
)

UNLIMITED = 1 << 30


class Call(NamedTuple):
    """A reserve, extend, fork (an extend with parents, which can free what beams held) or free,
    for which sequence, and whether it was granted."""

    verb: str
    sequence: int
    granted: bool


class RecordingBackend:
    """A real backend that keeps a list of the calls made to it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.calls: list[Call] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def reserve(self, sequence: int, tokens: int, room: int, demand: Demand) -> Hold | None:
        return self._noted(
            "reserve", sequence, self.backend.reserve(sequence, tokens, room, demand)
        )

    def extend(
        self, sequence: int, tokens: int, parents: Sequence[int] | None = None
    ) -> Hold | None:
        verb = "extend" if parents is None else "fork"
        return self._noted(verb, sequence, self.backend.extend(sequence, tokens, parents))

    def free(self, sequence: int, computed: int = 0) -> None:
        self.backend.free(sequence, computed)
        self.calls.append(Call("free", sequence, granted=True))

    def _noted(self, verb: str, sequence: int, hold: Hold | None) -> Hold | None:
        self.calls.append(Call(verb, sequence, hold is not None))
        return hold


@dataclass(slots=True)
class End:
    """How a request ended."""

    sequence: EngineSequence
    status: Status
    cause: str | None
    end_s: float


def cost_model(block_tokens: int | None = None) -> CostModel:
    """Modelled times of the small model on an A100."""
    return CostModel(
        shape=SHAPE,
        gpu=load_gpu("a100_80gb"),
        weight_dtype="fp16",
        kv_dtype="fp16",
        tensor_parallel=1,
        constants=load_constants(),
        kv_block_tokens=block_tokens,
    )


def limits(**changes: Any) -> Limits:
    """Limits that refuse nothing, but for the changes."""
    settings: dict[str, Any] = {
        "prefill": "chunked",
        "token_budget": UNLIMITED,
        "max_num_seqs": UNLIMITED,
        "max_live_tokens": None,
        "admit_whole_prompt": True,
        "on_oom": "queue",
    }
    return Limits(**settings | changes)


def families(request: Request) -> TokenIds:
    """Prompts of three families, alike up to a length of their own."""
    alike = 4 * request.output_tokens
    ids = [request.request_id % 3] * alike + [1000 + request.request_id] * 2000
    return lambda start, stop: b"".join(i.to_bytes(4, "little") for i in ids[start:stop])


class Lab:
    """An engine, the calls to its backend, and how each request ended."""

    def __init__(
        self,
        backend: Backend,
        budget_bytes: int,
        token_bytes: int,
        engine_limits: Limits,
        *,
        max_model_len: int = 512,
        activations: Activations | None = None,
        driver_calls: Callable[[], dict[str, int]] = dict,
        sources: Sources | None = None,
        incidents: IncidentLog | None = None,
    ) -> None:
        self.backend = RecordingBackend(backend)
        self.ends: list[End] = []
        self.steps: list[Step] = []
        self.now = 0.0
        self.engine = Engine(
            self.backend,
            ModelledExecutor(cost_model(backend.block_tokens), activations, driver_calls),
            engine_limits,
            MemoryAccount(token_bytes, budget_bytes),
            incidents or IncidentLog(dict),
            max_model_len,
            lambda *end: self.ends.append(End(*end)),
            families if backend.caches_prefixes else None,
            sources,
        )

    def send(self, *lengths: tuple[int, int]) -> list[EngineSequence]:
        """Requests of (prompt, output) tokens, all now, numbered on from those before."""
        return [self.add(prompt, output) for prompt, output in lengths]

    _sent = 0

    def add(self, prompt_tokens: int, output_tokens: int, **more: Any) -> EngineSequence:
        request = Request(self._sent, self.now, prompt_tokens, output_tokens, **more)
        self._sent += 1
        return self.engine.add(request, self.now)

    def step(self) -> Step | None:
        """One step, the clock set to its end."""
        step = self.engine.step(self.now)
        if step is not None:
            self.steps.append(step)
            self.now = step.end_s
        return step

    def run(self) -> None:
        """Steps until nothing is left to do; a round without a step can only free memory."""
        stuck = 0
        while not self.engine.idle:
            stuck = stuck + 1 if self.step() is None else 0
            assert stuck < 10, "nothing can be scheduled"

    @property
    def running(self) -> list[int]:
        """Ids of running requests, in order of admission."""
        return [sequence.id for sequence in self.engine.running]

    @property
    def waiting(self) -> list[int]:
        """Ids of queued requests, the first in line first."""
        return [sequence.id for sequence in self.engine._scheduler.waiting]

    def ended(self, status: Status) -> list[int]:
        """Ids of requests that ended so, in order."""
        return [end.sequence.id for end in self.ends if end.status is status]

    def calls(self, *verbs: str) -> Sequence[Call]:
        """The backend's calls of these kinds, in order."""
        return [call for call in self.backend.calls if call.verb in verbs]
