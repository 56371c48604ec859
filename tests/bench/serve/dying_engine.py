"""An engine's process in which the allocator refuses the activations of one sequence."""

from __future__ import annotations

from typing import Any

import torch

from bench.engine.engine import Engine
from bench.serve import engine_process

STEPS = 20
"""Before it does."""


def run(payload: dict[str, Any]) -> None:
    """As bench.serve.engine_process.run; for a process of its own."""
    execute = Engine._execute

    def refused(self: Engine, *what: Any) -> Any:
        if self.steps >= STEPS:
            torch.empty(1 << 45, dtype=torch.uint8, device="cuda")  # more than there is
        return execute(self, *what)

    Engine._execute = refused  # type: ignore[method-assign]
    engine_process.run(payload)
