"""The card that is there, and the virtual GPU that is made like it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bench.device.launcher import DeviceKind
from bench.device.virtual import gpu_environment
from bench.gpu import GIB, Gpu
from bench.packaged import load_gpu, option_names

STAND_IN = "h100_80gb"
"""Whose speed is modelled for a card that conf/gpu/ does not have; memory is the card's own."""


@dataclass(frozen=True, slots=True)
class Card:
    """What bench.gpu_check.card_job found: bytes that the driver calls total, and of them those
    that a process with a CUDA context finds free."""

    name: str
    total_bytes: int
    free_bytes: int
    compute_capability: str
    torch: str
    cuda: str
    driver: str

    @property
    def option(self) -> str | None:
        """Its option in conf/gpu/, None where it has none."""
        names = (n for n in option_names("gpu") if load_gpu(n).device_name == self.name)
        return next(names, None)

    def overrides(self) -> list[str]:
        """Hydra's, for a run on this card."""
        if self.option:
            return [f"gpu={self.option}"]
        return [f"gpu={STAND_IN}", f"gpu.device_name='{self.name}'"]

    def virtual_overrides(self) -> list[str]:
        """Hydra's, for a run on a virtual GPU with exactly this card's memory."""
        gpu = self.gpu()
        fields = ("memory_gib", "context_gib", "modules_gib")
        return [*self.overrides(), *(f"gpu.{name}={getattr(gpu, name)}" for name in fields)]

    def gpu(self) -> Gpu:
        """The same for gpu_environment()."""
        return replace(
            load_gpu(self.option or STAND_IN),
            device_name=self.name,
            memory_gib=self.total_bytes / GIB,
            context_gib=(self.total_bytes - self.free_bytes) / GIB,
            modules_gib=0.0,  # as many as were loaded are in what was measured
        )

    def __str__(self) -> str:
        memory = f"{self.total_bytes / GIB:.2f} GiB, {self.free_bytes / GIB:.2f} free"
        made_for = f"PyTorch {self.torch}, CUDA {self.cuda}"
        return f"{self.name} ({self.compute_capability}), {memory}; {self.driver}; {made_for}"


@dataclass(frozen=True, slots=True)
class Device:
    """Where a job runs: the launcher's kind, and what its environment gets."""

    kind: DeviceKind
    environment: dict[str, str] = field(default_factory=dict)


REAL = Device("cuda")


def virtual_twin(card: Card) -> Device:
    """A virtual GPU with the card's memory."""
    return Device("virtual", gpu_environment(card.gpu()))


def card_from(found: Mapping[str, Any]) -> Card:
    """A Card from what the job returned."""
    return Card(**found)
