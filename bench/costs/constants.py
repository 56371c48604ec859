"""The constants of the cost model that hold for every GPU: the schema of `conf/costs/`."""

from __future__ import annotations

from dataclasses import dataclass, fields

from bench.errors import SettingError

# Part of a step's or a copy's own time, a second count of the same call, or work of the host.
UNCHARGED_CALLS = (
    "copy",
    "kernel_launch",
    "graph_launch",
    "event_synchronize",
    "failed_allocation",
    "cudaHostAlloc",
    "cudaFreeHost",
    "unsupported",
)


@dataclass
class CostConstants:
    """Constants shared by all GPUs; `conf/costs/default.yaml` names each one's source.

    Efficiencies are shares of the data sheet's peak. The factor on paged attention's time with
    blocks of b tokens is 1 + paged_attention_fixed + paged_attention_block_tokens / b.
    elementwise_overhead_share is a share of the GPU's operator_overhead_us. step_overhead_us is
    what an engine step takes beyond its operators, whatever is in it.

    Raises SettingError if a constant is negative, or an efficiency 0 or above 1.
    """

    attention_compute_efficiency: float
    elementwise_bandwidth_efficiency: float
    elementwise_overhead_share: float
    paged_attention_fixed: float
    paged_attention_block_tokens: float
    interconnect_efficiency: float
    all_reduce_latency_us: float
    synchronization_us: float
    cuda_malloc_us: float
    cuda_free_us: float
    cu_mem_address_reserve_us: float
    cu_mem_address_free_us: float
    cu_mem_create_us: float
    cu_mem_release_us: float
    cu_mem_map_us: float
    cu_mem_unmap_us: float
    cu_mem_set_access_us: float
    step_overhead_us: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 0:
                raise SettingError(f"costs.{field.name}={value} must be at least 0.")
            if field.name.endswith("_efficiency") and not 0 < value <= 1:
                raise SettingError(
                    f"costs.{field.name}={value} must be above 0 and at most 1: it is a share of "
                    "the peak."
                )

    def driver_call_s(self) -> dict[str, float]:
        """Seconds a driver call takes, by the kinds that the virtual GPU counts.

        cudaMalloc and cudaFree wait for the device themselves; before cuMemUnmap PyTorch
        synchronizes, which counts as a call of its own.
        """
        drain_us = self.synchronization_us
        call_us = {
            "cudaMalloc": self.cuda_malloc_us + drain_us,
            "cudaFree": self.cuda_free_us + drain_us,
            "cuMemAddressReserve": self.cu_mem_address_reserve_us,
            "cuMemAddressFree": self.cu_mem_address_free_us,
            "cuMemCreate": self.cu_mem_create_us,
            "cuMemRelease": self.cu_mem_release_us,
            "cuMemMap": self.cu_mem_map_us,
            "cuMemUnmap": self.cu_mem_unmap_us,
            "cuMemSetAccess": self.cu_mem_set_access_us,
            "device_synchronize": drain_us,
            "stream_synchronize": drain_us,
        }
        charged = {kind: us * 1e-6 for kind, us in call_us.items()}
        return charged | dict.fromkeys(UNCHARGED_CALLS, 0.0)
