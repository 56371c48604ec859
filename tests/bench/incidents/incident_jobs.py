"""Engines that run out of memory on the virtual GPU, in one way or another: jobs for tests."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from backends.base import Backend, KvLayout
from backends.bucketed import Bucketed
from backends.contiguous import Contiguous
from backends.paged import Paged
from backends.vmm import Vmm
from bench.device.stats import DriverCalls, HeldBack, hold_back
from bench.engine.activations import Activations, record
from bench.engine.engine import ActivationsDoNotFitError
from bench.incidents.counterfactual import Moment, first_change
from tests.bench.engine.lab import SHAPE, Lab, limits
from tests.bench.incidents.witness import Witness

MIB = 1 << 20
PAGE_BYTES = 2 << 20
TOKEN_BYTES = 64 << 10
LONGEST = 1024

_settings: Any = torch.cuda.memory._set_allocator_settings

STRATEGIES: dict[str, Callable[[], Backend]] = {
    "max": lambda: Contiguous(reserve="max", layout="sequence"),
    "oracle": lambda: Contiguous(reserve="oracle", layout="sequence"),
    "grow": lambda: Contiguous(reserve="grow", layout="sequence"),
    "grow_layer": lambda: Contiguous(reserve="grow", layout="layer"),
    "buddy": lambda: Contiguous(reserve="oracle", arena="buddy"),
    "bucketed": lambda: Bucketed(buckets=[64, 128, 256, 512, 1024]),
    "paged": Paged,
    "paged_1": lambda: Paged(block_size=1),
    "paged_256": lambda: Paged(block_size=256),
    "paged_watermark": lambda: Paged(watermark=0.5),
    "vmm": lambda: Vmm(layout="sequence"),
}


class Card:
    """An engine on a card with room for a KV budget and `slack_mib` beside it, and no more."""

    def __init__(
        self,
        strategy: str,
        budget_mib: int,
        slack_mib: int,
        *,
        activations: bool,
        token_bytes: int = TOKEN_BYTES,
        **changes: Any,
    ) -> None:
        make = STRATEGIES[strategy]
        layout = KvLayout(2, token_bytes, LONGEST, budget_mib * MIB, "cuda")
        backend, calls = make(), DriverCalls()
        trace = replayed = None
        if activations:
            trace = record(SHAPE, 1)
            total = lambda: sum(calls.read().values())  # noqa: E731
            replayed = Activations(trace, ages=False, driver_calls=total)
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
        self._before = torch.cuda.memory_allocated()
        free, _ = torch.cuda.mem_get_info()
        self._held = hold_back((free // PAGE_BYTES * PAGE_BYTES) - (budget_mib + slack_mib) * MIB)
        backend.start(layout)
        self.witness = Witness(make, layout, trace)
        settings = {"prefill": backend.prefill, "token_budget": LONGEST} | changes
        self.lab = Lab(
            backend, layout.budget_bytes, token_bytes, limits(**settings), max_model_len=LONGEST,
            activations=replayed, driver_calls=calls.read, incidents=self.witness,
        )  # fmt: skip

    def run(self, *lengths: tuple[int, int]) -> None:
        """Sends requests, and steps until all is done or activations do not fit at all."""
        self.lab.send(*lengths)
        with suppress(ActivationsDoNotFitError):
            self.lab.run()
        self.lab.engine.stop(self.lab.now)

    def judged(self, most: int = 1 << 30) -> list[dict[str, Any]]:
        """Each incident with the layer that the ground truth says it comes from."""
        seen = [(dict(incident), moment) for incident, moment in self.witness.seen[:most]]
        self._tear_down()
        return [incident | {"truth": first_change(moment)} for incident, moment in seen]

    def _tear_down(self) -> None:
        held: HeldBack = self._held
        self.witness.seen.clear()
        self.witness._holders = None  # type: ignore[assignment]
        del self.lab, self.witness
        gc.collect()
        torch.cuda.empty_cache()
        held.release()
        left = torch.cuda.memory_allocated() - self._before
        assert left == 0, f"{left} bytes are left of the engine"
        _settings("expandable_segments:False")  # or segments would be of 20 MiB


def case(payload: dict[str, Any]) -> list[dict[str, Any]]:
    """Requests of (prompt, output) tokens, `groups` of them, each sent some steps after the one
    before: the incidents."""
    card = Card(
        payload["strategy"], payload["budget_mib"], payload["slack_mib"],
        activations=payload.get("activations", False),
        token_bytes=payload.get("token_bytes", TOKEN_BYTES), **payload.get("limits", {}),
    )  # fmt: skip
    for lengths, steps in payload.get("groups", ()):
        card.lab.send(*map(tuple, lengths))
        for _ in range(steps):
            card.lab.step()
    card.run(*map(tuple, payload["last"]))
    return card.judged()


def random_run(payload: dict[str, Any]) -> list[dict[str, Any]]:
    """Sixty requests of random lengths on a tight card, some of them cancelled on their way."""
    draw = random.Random(payload["seed"])
    card = Card(
        payload["strategy"], payload["budget_mib"], payload["slack_mib"],
        activations=payload.get("activations", True), max_num_seqs=draw.choice((8, 32, 256)),
    )  # fmt: skip
    lab = card.lab
    with suppress(ActivationsDoNotFitError):
        for _ in range(60):
            prompt = draw.randrange(1, draw.choice((60, 400, 900)))
            lab.add(prompt, draw.randrange(1, LONGEST - prompt))
            for _ in range(draw.randrange(12)):
                lab.step()
            if lab.engine.running and draw.random() < 0.3:
                lab.engine.cancel(draw.choice(lab.engine.running), lab.now)
        lab.run()
    lab.engine.stop(lab.now)
    del lab
    return card.judged(payload.get("most", 40))


def by_hand(payload: dict[str, Any]) -> list[str]:
    """The truth of moments that a test made up, in MiB."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    in_bytes = ("limit", "live", "wanted", "needed")
    layers = []
    for each in payload["moments"]:
        sizes = {name: [n * MIB for n in each[name]] for name in ("others", "kv")}
        numbers = {name: each[name] * MIB for name in in_bytes}
        moment = Moment(**sizes, **numbers, is_kv=each["is_kv"], pooled=each["pooled"])  # type: ignore[arg-type]
        layers.append(str(first_change(moment)))
    return layers
