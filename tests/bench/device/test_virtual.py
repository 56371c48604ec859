"""The environment of a process on the virtual GPU."""

from __future__ import annotations

from pathlib import Path

from bench.device.build import VirtualGpuLibraries
from bench.device.virtual import preloaded

LIBRARIES = VirtualGpuLibraries(Path("/kept/gpu-1/libcuda.so.1"), Path("/kept/gpu-1/libnvidia.so"))


def test_the_libraries_come_before_what_was_preloaded() -> None:
    environment = preloaded({"LD_PRELOAD": "/lib/own.so", "HOME": "/home"}, LIBRARIES)
    assert environment["LD_PRELOAD"] == f"{LIBRARIES.cuda}:{LIBRARIES.nvml}:/lib/own.so"
    assert environment["HOME"] == "/home"


def test_what_is_compiled_for_a_virtual_card_stays_out_of_a_real_ones_caches() -> None:
    base = {"VLLM_CACHE_ROOT": "/real/vllm", "TORCHINDUCTOR_CACHE_DIR": "/real/inductor"}
    environment = preloaded(base, LIBRARIES)
    assert environment["VLLM_CACHE_ROOT"] == "/kept/vllm"
    assert environment["TORCHINDUCTOR_CACHE_DIR"] == "/kept/inductor"
