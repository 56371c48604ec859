"""GPU descriptions: every file of conf/gpu loads, and sizes are whole pages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError

from bench.errors import SettingError
from bench.gpu import PAGE_BYTES, Gpu
from bench.packaged import load_gpu, option_names

NAMES = option_names("gpu")


def test_the_gpus_of_the_design_are_there() -> None:
    assert set(NAMES) >= {"a100_40gb", "a100_80gb", "h100_80gb", "h200_141gb", "rtx4090"}


@pytest.mark.parametrize("name", NAMES)
def test_every_file_loads_and_is_named_as_its_gpu(name: str) -> None:
    gpu = load_gpu(name)
    assert gpu.name == name
    assert gpu.memory_bytes % PAGE_BYTES == gpu.usable_bytes % PAGE_BYTES == 0
    assert 0 < gpu.usable_bytes < gpu.memory_bytes


@pytest.mark.parametrize("name", NAMES)
def test_shared_memory_follows_the_compute_capability(name: str) -> None:
    gpu = load_gpu(name)
    # CUDA C++ Programming Guide, technical specifications: KiB of an SM; 1 KiB is the system's.
    kib_of_capability = {"8.0": 164, "8.9": 100, "9.0": 228}
    kib = kib_of_capability[gpu.compute_capability]
    assert gpu.shared_memory_per_multiprocessor == kib * 1024
    assert gpu.shared_memory_per_block_optin == (kib - 1) * 1024


def test_an_80_gb_a100_has_its_real_size_in_whole_pages() -> None:
    # 79.15 GiB is 40,524.8 pages of 2 MiB, and its context of 0.5 GiB takes 256.
    gpu = load_gpu("a100_80gb")
    assert gpu.memory_bytes == 40_524 * PAGE_BYTES
    assert gpu.usable_bytes == (40_524 - 256) * PAGE_BYTES


def test_modules_are_no_memory_for_tensors_and_graphs_take_theirs_as_they_come() -> None:
    gpu = load_gpu("a100_80gb")
    charged = replace(gpu, modules_gib=gpu.modules_gib + 0.25, graph_mib=1.5)
    assert gpu.usable_bytes - charged.usable_bytes == 128 * PAGE_BYTES
    assert charged.memory_bytes == gpu.memory_bytes
    assert charged.graph_bytes == 3 << 19


def test_a_gpu_without_a_profile_borrows_its_numbers_and_says_so() -> None:
    for borrower, lender in (("h200_141gb", "h100_80gb"), ("rtx4090", "a100_80gb")):
        assert _fitted(load_gpu(borrower)) == _fitted(load_gpu(lender))
        assert load_gpu(borrower).fitted_from.startswith("assumed from")


def _fitted(gpu: Gpu) -> tuple[float, float, float]:
    return gpu.compute_efficiency, gpu.bandwidth_efficiency, gpu.operator_overhead_us


def test_a_misspelt_key_fails() -> None:
    with pytest.raises(ConfigKeyError, match="memory_gb"):
        OmegaConf.merge(OmegaConf.structured(Gpu), {"memory_gb": 80})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("bandwidth_gb_s", 0.0),
        ("compute_efficiency", 1.2),
        ("bandwidth_efficiency", 0.0),
        ("operator_overhead_us", -1.0),
        ("context_gib", 80.0),
        ("context_gib", -1.0),
        ("modules_gib", 79.0),
        ("modules_gib", -0.1),
        ("graph_mib", -1.0),
        ("graph_mib", 79.15 * 1024),
        ("memory_gib", float("inf")),
        ("memory_gib", 1e7),
        ("compute_capability", "new"),
    ],
)
def test_an_impossible_value_is_refused_by_name(field: str, value: float | str) -> None:
    with pytest.raises(SettingError, match=field):
        replace(load_gpu("a100_80gb"), **{field: value})  # type: ignore[arg-type]
