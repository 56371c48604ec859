"""The environment variables that put a process on the virtual GPU."""

from __future__ import annotations

from collections.abc import Mapping

from bench.device.build import VirtualGpuLibraries
from bench.gpu import Gpu

PREFIX = "FRAGBENCH_VGPU_"


def preloaded(base: Mapping[str, str], libraries: VirtualGpuLibraries) -> dict[str, str]:
    """A copy of an environment whose new processes find the virtual GPU instead of CUDA."""
    environment = dict(base)
    preload = [str(libraries.cuda), str(libraries.nvml)]
    if environment.get("LD_PRELOAD"):
        preload.append(environment["LD_PRELOAD"])
    environment["LD_PRELOAD"] = ":".join(preload)
    environment["TRITON_LIBCUDA_PATH"] = str(libraries.cuda.parent)
    # cuDNN asks the driver for more than there is here; attention falls to flash attention.
    environment["TORCH_CUDNN_SDPA_DEPRIORITIZED"] = "1"
    # What compilers choose by timing kernels that do nothing is not for the card of that name.
    kept = libraries.cuda.parents[1]
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(kept / "inductor")
    environment["VLLM_CACHE_ROOT"] = str(kept / "vllm")
    environment.pop("CUDA_VISIBLE_DEVICES", None)  # it may hide the one device that there is
    return environment


def gpu_environment(gpu: Gpu, *, lazy_modules: bool = False, trace: bool = False) -> dict[str, str]:
    """The settings of a virtual GPU, which it reads at a process's first use of CUDA.

    With `lazy_modules` the code of kernels is charged as they are first launched, as on a card: for
    programs that divide memory by what they find. Else it is charged with the context, so that
    `Gpu.usable_bytes` are there from the start, whether or not a run launches kernels.
    """
    modules_bytes = gpu.modules_bytes if lazy_modules else 0
    values = {
        "NAME": gpu.device_name,
        "MEMORY_BYTES": gpu.memory_bytes,
        "CONTEXT_BYTES": gpu.memory_bytes - gpu.usable_bytes - modules_bytes,
        "MODULES_BYTES": modules_bytes,
        "GRAPH_BYTES": gpu.graph_bytes,
        "COMPUTE_CAPABILITY": gpu.compute_capability,
        "MULTIPROCESSORS": gpu.multiprocessors,
        "THREADS_PER_MULTIPROCESSOR": gpu.max_threads_per_multiprocessor,
        "SHARED_MEMORY_PER_BLOCK": gpu.shared_memory_per_block_optin,
        "SHARED_MEMORY_PER_MULTIPROCESSOR": gpu.shared_memory_per_multiprocessor,
        "L2_CACHE_BYTES": gpu.l2_cache_bytes,
        "TRACE": int(trace),
    }
    return {PREFIX + name: str(value) for name, value in values.items()}


def allocator_environment(alloc_conf: str) -> dict[str, str]:
    """PyTorch's allocator settings, under the name of today and the one before PyTorch 2.10."""
    return {"PYTORCH_ALLOC_CONF": alloc_conf, "PYTORCH_CUDA_ALLOC_CONF": alloc_conf}
