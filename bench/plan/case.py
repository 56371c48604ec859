"""What a plan is about: a configuration, and the requests that its workload sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.config import Config
from bench.plan.division import CONFIGURED, changed
from bench.plan.layouts import Held, Lengths, held
from bench.traffic.limits import too_wide
from bench.traffic.sample import Sample

WEIGHTS = ("fp16", "fp8", "int4")
LEAST_FOR_P99 = 100


@dataclass(frozen=True)
class Case:
    """`container` is the configuration as plain data; `traffic` are the figures of its preview
    (docs/preview.md), `sample` the requests that they count."""

    container: Mapping[str, Any]
    config: Config
    sample: Sample
    traffic: Mapping[str, Any]

    @cached_property
    def lengths(self) -> Lengths:
        """Of all requests."""
        sample = self.sample
        return Lengths(sample.prompt_tokens, sample.output_tokens, sample.branches)

    def served(self, max_model_len: int, kind: str | None = None) -> Lengths:
        """Requests, of one kind if named, that are not rejected with `max_model_len`."""
        lengths = self.lengths
        fits = (lengths.total_tokens <= max_model_len) & ~too_wide(self.sample, self.config)
        return lengths.where(fits if kind is None else fits & (self._kinds == kind))

    def held(self, max_model_len: int, kind: str | None = None) -> Held | None:
        """What those hold; None where there are none."""
        lengths = self.served(max_model_len, kind)
        return held(lengths, max_model_len) if lengths.requests else None

    @property
    def kinds(self) -> list[str]:
        """Of the requests; empty where there is one."""
        names = list(dict.fromkeys(self._kinds.tolist()))
        return names if len(names) > 1 else []

    def share(self, kind: str) -> float:
        """Of the requests, those of a kind."""
        return float((self._kinds == kind).mean())

    @cached_property
    def _kinds(self) -> NDArray[np.str_]:
        return np.array([turn.kind for turn in self.sample.turns])

    def longest(self, kind: str) -> int:
        """The smallest max_model_len that serves all of a kind that are served at all; where none
        is, the configured one."""
        served = self.served(self.config.max_model_len, kind)
        return int(served.total_tokens.max()) if served.requests else self.config.max_model_len

    @cached_property
    def shorter(self) -> dict[str, int]:
        """The smallest max_model_len that serves 99 % of the requests, and that serves all, where
        it is another than the configured one and the model can have it."""
        totals = np.sort(self.lengths.total_tokens)
        found = {"all": int(totals[-1])}
        if len(totals) >= LEAST_FOR_P99:
            found = {"p99": int(totals[-(-99 * len(totals) // 100) - 1])} | found
        now, most = self.config.max_model_len, self.config.model.max_model_len
        return {name: length for name, length in found.items() if now != length <= most}

    def served_share(self, max_model_len: int) -> float:
        """Of all requests, those within `max_model_len`."""
        return float((self.lengths.total_tokens <= max_model_len).mean())

    def variants(self) -> dict[str, dict[str, Any]]:
        """Every configuration whose division the plan's answers need, by name."""
        changes: dict[str, dict[str, Any]] = {CONFIGURED: {}}
        for prefill in ("whole", "chunked"):
            changes[f"prefill={prefill}"] = self._prefill(prefill)
        changes["kv_dtype=fp8"] = {"kv_dtype": "fp8"}
        for name, length in self.shorter.items():
            changes[f"max_model_len={name}"] = {"max_model_len": length}
        for dtype in WEIGHTS:
            changes[f"weight_dtype={dtype}"] = {"weight_dtype": dtype}
        for kind in self.kinds:
            changes[f"kind={kind}"] = {"max_model_len": self.longest(kind)}
        return {name: changed(self.container, each) for name, each in changes.items()}

    def _prefill(self, prefill: str) -> dict[str, Any]:
        """Another way of prefill has a token budget of its own."""
        if self.config.engine.prefill == prefill:
            return {}
        return {"engine.prefill": prefill, "engine.token_budget": None}
