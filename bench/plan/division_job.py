"""How a card is divided, asked of the virtual GPU in a process of its own: nothing is served."""

from __future__ import annotations

from typing import Any

from backends.base import Backend, BackendError, KvLayout
from bench.config import from_container
from bench.device.allocator_start import start_allocator
from bench.engine.device_memory import DeviceMemory
from bench.engine.limits import resolve_limits
from bench.errors import SettingError
from bench.plugins import make, make_all
from bench.sources.active import Sources


class _Asked:
    """The backend of a configuration whose refusal of the KV budget is an answer, not an end."""

    def __init__(self, backend: Backend) -> None:
        self.alloc_conf = backend.alloc_conf
        self.refused: str | None = None
        self._backend = backend

    def start(self, layout: KvLayout) -> None:
        """Lets the backend take its memory, and notes why it did not."""
        try:
            self._backend.start(layout)
        except BackendError as error:
            self.refused = str(error)

    def usable_bytes(self) -> int | None:
        """What sequences can be given of the KV budget, after the backend's own rounding."""
        return None if self.refused else self._backend.usage().free


def divide(payload: dict[str, Any]) -> dict[str, Any]:
    """The division of `payload["config"]`'s card by what a run makes of it, or `refused`: why there
    is none. Raises SettingError, or a plug-in's error, for a setting that no card would take."""
    config = from_container(payload["config"])
    backend: Backend = make(payload["config"]["backend"], "backend")
    sources = Sources(make_all(payload["config"]["sources"], "sources"))
    limits = resolve_limits(config, backend)
    start_allocator()
    asked: Any = _Asked(backend)
    step = {"prefill": limits.prefill, "largest_step_tokens": limits.largest_step[0]}
    try:
        memory = DeviceMemory(config, asked, limits, "virtual", sources)
    except SettingError as error:
        return step | {"refused": str(error)}
    return step | {
        "usable_bytes": memory.plan.usable_bytes,
        **memory.facts(config),
        "pool_bytes": asked.usable_bytes(),
        "backend_refused": asked.refused,
        "refused": None,
    }


def divide_variant(payload: dict[str, Any]) -> dict[str, Any]:
    """The same of a configuration that nobody asked for: a setting that it cannot have is its
    answer."""
    try:
        return divide(payload)
    except (SettingError, BackendError) as error:
        return {"refused": str(error)}
