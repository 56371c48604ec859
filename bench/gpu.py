"""What fragbench knows of a GPU: the schema of `conf/gpu/`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bench.errors import SettingError

GIB = 1 << 30
MIB = 1 << 20
PAGE_BYTES = 2 * MIB
MOST_MEMORY_GIB = 16_384
"""Beyond any card; pools of more blocks take minutes to make."""


@dataclass(kw_only=True)
class Gpu:
    """One GPU's memory, identity and speed. Sources are named in each file of `conf/gpu/`.

    `memory_gib` is what `cudaMemGetInfo` calls total (an "80 GB" A100 has 79.15);
    `context_gib` is what the CUDA context takes of it in a serving process, `modules_gib` the code
    of kernels on top, which a card loads as they are first used, and `graph_mib` what the driver
    keeps of each instantiated CUDA graph; 0 means "not calibrated" for these two.
    `*_tflops` are dense tensor-core peaks; `fp8_tflops` is null where there are no FP8 cores.
    `bandwidth_gb_s` and `interconnect_gb_s` count 1e9 bytes a second, the latter in one direction.
    The three fitted numbers come from measured operator times (docs/costs.md), as `fitted_from`
    says: a GPU without a profile borrows those of another.

    Raises SettingError if a number is out of its range.
    """

    name: str
    device_name: str
    memory_gib: float
    context_gib: float
    modules_gib: float = 0.0
    graph_mib: float = 0.0
    compute_capability: str
    multiprocessors: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    max_threads_per_multiprocessor: int
    l2_cache_bytes: int
    fp16_tflops: float
    fp8_tflops: float | None
    bandwidth_gb_s: float
    interconnect_gb_s: float
    compute_efficiency: float
    bandwidth_efficiency: float
    operator_overhead_us: float
    fitted_from: str

    def __post_init__(self) -> None:
        for field in ("fp16_tflops", "bandwidth_gb_s", "interconnect_gb_s", "multiprocessors"):
            if getattr(self, field) <= 0:
                raise SettingError(
                    f"gpu.{field}={getattr(self, field)} must be above 0: take it from the "
                    "card's data sheet."
                )
        for field in ("compute_efficiency", "bandwidth_efficiency"):
            if not 0 < getattr(self, field) <= 1:
                raise SettingError(
                    f"gpu.{field}={getattr(self, field)} must be above 0 and at most 1: it is "
                    "the share of the peak that kernels reach."
                )
        if self.operator_overhead_us < 0:
            raise SettingError(
                f"gpu.operator_overhead_us={self.operator_overhead_us} must be at least 0: it is "
                "a kernel's launch, in microseconds (2-10 on current cards)."
            )
        self._check_memory()
        if not re.fullmatch(r"\d{1,2}\.\d", self.compute_capability):
            raise SettingError(
                f'gpu.compute_capability={self.compute_capability} must be a version such as "8.0".'
            )

    def _check_memory(self) -> None:
        taken = f"gpu.context_gib={self.context_gib} and gpu.modules_gib={self.modules_gib}"
        if not (self.context_gib >= 0 and self.modules_gib >= 0):
            raise SettingError(f"{taken} must be at least 0: give what they take of the card.")
        if not self.context_gib + self.modules_gib < self.memory_gib <= MOST_MEMORY_GIB:
            raise SettingError(
                f"gpu.memory_gib={self.memory_gib} must be at most {MOST_MEMORY_GIB} and above "
                f"{taken} together: give a card's size, or less of these."
            )
        if not 0 <= self.graph_mib < self.memory_gib * 1024:
            raise SettingError(
                f"gpu.graph_mib={self.graph_mib} must be at least 0 and below the card's "
                f"gpu.memory_gib={self.memory_gib}: give the MiB that one graph takes."
            )

    @property
    def memory_bytes(self) -> int:
        """Device memory that the driver reports, in bytes, in whole 2 MiB pages."""
        return _whole_pages(self.memory_gib)

    @property
    def usable_bytes(self) -> int:
        """Memory left for the tensors and graphs of a process that launches kernels, in bytes."""
        return self.memory_bytes - _whole_pages(self.context_gib) - self.modules_bytes

    @property
    def modules_bytes(self) -> int:
        """What the code of kernels takes, in bytes, in whole 2 MiB pages."""
        return _whole_pages(self.modules_gib)

    @property
    def graph_bytes(self) -> int:
        """What the driver keeps of one instantiated graph, in bytes."""
        return int(self.graph_mib * MIB)


def _whole_pages(gib: float) -> int:
    return int(gib * GIB) // PAGE_BYTES * PAGE_BYTES
