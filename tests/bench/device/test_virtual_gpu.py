"""The virtual GPU: facts known from real ones, and what it must keep."""

from __future__ import annotations

import os
import pickle
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bench.device.build import build_virtual_gpu, find_compiler
from bench.device.launcher import Job, Launcher
from bench.device.virtual import gpu_environment, preloaded
from bench.packaged import load_gpu, option_names
from tests.bench.device.support import DEVICE_JOBS, Runner

MIB = 1 << 20
INVALID_VALUE, OUT_OF_MEMORY = 1, 2
GIB = 1 << 30
EXPANDABLE = "expandable_segments:True"


@pytest.mark.parametrize(
    ("alloc_conf", "reserved"),
    [
        # Segments of 16 MiB cannot serve 32 MiB, and a private pool's are not given back.
        ("expandable_segments:False", [128, 256]),
        # Eight blocks of 16 MiB need seven steps of 20 MiB; freed, they are one block again.
        (EXPANDABLE, [140, 140]),
    ],
)
def test_a_private_pool_grows_as_on_a_real_gpu(
    on_gpu: Runner, alloc_conf: str, reserved: list[int]
) -> None:
    assert on_gpu("sizes_in_a_private_pool", alloc_conf=alloc_conf) == reserved


def test_expandable_segments_map_20_mib_at_a_time(on_gpu: Runner) -> None:
    grown = on_gpu("grow", alloc_conf=EXPANDABLE)
    assert grown == [20, 40, 60, 80, 80, 100, 120, 140]


def test_segments_of_16_mib_are_taken_one_by_one_without_expandable_segments(
    on_gpu: Runner,
) -> None:
    assert on_gpu("grow") == [16 * n for n in range(1, 9)]


def test_running_out_of_memory_says_what_is_held_and_by_whom(on_gpu: Runner) -> None:
    text = on_gpu("run_out_of_memory", memory_gib=2)
    # 2 GiB less a segment of 100 MiB is 1.90 GiB.
    assert text.startswith(
        "CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 2.00 GiB of "
        "which 1.90 GiB is free. Including non-PyTorch memory, this process has 100.00 MiB memory "
        "in use. Of the allocated memory 60.00 MiB is allocated by PyTorch, and 40.00 MiB is "
        "reserved by PyTorch but unallocated."
    )


def test_a_snapshot_loads_again(on_gpu: Runner, tmp_path: Path) -> None:
    path = tmp_path / "memory_snapshot.pickle"
    held = on_gpu("dump_snapshot", path=str(path))
    snapshot = pickle.loads(path.read_bytes())
    segments = snapshot["segments"]
    assert sum(s["total_size"] for s in segments) == held["reserved"]
    assert sum(s["allocated_size"] for s in segments) == held["allocated"] == 30 * MIB
    actions = [entry["action"] for entry in snapshot["device_traces"][0]]
    assert actions.count("alloc") == 2
    assert actions.count("free_completed") == 1


def test_roundup_power2_divisions_rounds_requests_up(on_gpu: Runner) -> None:
    # Without the setting requests are rounded to 512; with it to a quarter of their power of two,
    # here 8,192 + 2,048.
    assert on_gpu("allocate_bytes", bytes=9000) == 9216
    rounded = on_gpu("allocate_bytes", bytes=9000, alloc_conf="roundup_power2_divisions:4")
    assert rounded == 10240


def test_max_split_size_keeps_large_blocks_whole(on_gpu: Runner) -> None:
    assert on_gpu("reuse_a_large_block") == 200
    assert on_gpu("reuse_a_large_block", alloc_conf="max_split_size_mb:100") == 250


def test_garbage_collection_threshold_gives_back_unused_blocks(on_gpu: Runner) -> None:
    assert on_gpu("collect_garbage", memory_gib=1.5) == 1000
    conf = "garbage_collection_threshold:0.3"
    assert on_gpu("collect_garbage", memory_gib=1.5, alloc_conf=conf) == 400


@pytest.mark.parametrize("name", option_names("gpu"))
def test_the_device_is_what_its_settings_say(launcher: Launcher, name: str) -> None:
    gpu = load_gpu(name)
    found = launcher.run(Job(f"{DEVICE_JOBS}:describe_device", {}, gpu_environment(gpu))).result
    assert found == {
        "name": gpu.device_name,
        "capability": [int(digit) for digit in gpu.compute_capability.split(".")],
        "multiprocessors": gpu.multiprocessors,
        "shared_memory_per_block_optin": gpu.shared_memory_per_block_optin,
        "l2_cache": gpu.l2_cache_bytes,
        "total": gpu.memory_bytes,
        "free": gpu.usable_bytes,
        "device_count": 1,
        "zeros": [],
        "clusters": int(gpu.compute_capability >= "9.0"),
        "has_ecc": int(gpu.compute_capability.endswith(".0")),
        "double_to_single": 2 if gpu.compute_capability.endswith(".0") else 64,
    }


@pytest.mark.parametrize("memory_gib", [0.25, 79.15, 1024.0])
def test_capacity_is_exact(on_gpu: Runner, memory_gib: float) -> None:
    found = on_gpu("fill", memory_gib=memory_gib)
    whole_pages = int(memory_gib * GIB) // (2 * MIB) * (2 * MIB)
    assert found == {"free": whole_pages, "left": 0, "one_more": "refused"}


@pytest.mark.parametrize("alloc_conf", ["expandable_segments:False", EXPANDABLE])
def test_addresses_depend_on_the_calls_alone(on_gpu: Runner, alloc_conf: str) -> None:
    def life(seed: int) -> list[int]:
        found: list[int] = on_gpu(
            "addresses_of_a_random_life", seed=seed, memory_gib=40, alloc_conf=alloc_conf
        )
        return found

    assert life(1) == life(1)
    assert life(1) != life(2)


def test_device_memory_reads_as_zeros_and_host_memory_as_it_is(on_gpu: Runner) -> None:
    assert on_gpu("read_values_back") == {
        "pinned": True,
        "pinned_values": [0, 1, 2, 3],
        "pageable_is_pinned": False,
        "device_values": [0, 0, 0, 0],
        "item": 0.0,
    }


def test_a_graph_is_captured_and_launched(on_gpu: Runner) -> None:
    found = on_gpu("capture_a_graph")
    # Only the stream that a capture began on is captured, and only until it ends.
    assert found == {"launches": 1, "captured": [False, True, False, False]}


@pytest.mark.parametrize(
    "launch", ["__cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx"]
)
def test_each_kernel_loads_its_part_of_the_modules_once(on_gpu: Runner, launch: str) -> None:
    found = on_gpu("launch_kernels", launch=launch, modules_gib=0.25)
    # 256 MiB in parts of a 32nd; whoever comes after the 32nd kernel finds its code there.
    assert found == [0, 8, *range(8, 257, 8), 256, 256]


def test_modules_are_taken_with_the_context_where_a_run_may_launch_nothing(on_gpu: Runner) -> None:
    found = on_gpu("launch_kernels", launch="cuLaunchKernel", modules_gib=0.25, lazy_modules=False)
    assert set(found) == {256}


def test_a_forked_process_loads_its_own_modules(on_gpu: Runner) -> None:
    assert on_gpu("launch_kernels_in_a_child", modules_gib=0.25) == [16, 0, 8]


def test_threads_that_launch_at_once_load_no_more_than_there_is(tmp_path: Path) -> None:
    libraries, program = build_virtual_gpu(), tmp_path / "launches_at_once"
    source = str(Path(__file__).with_name("launches_at_once.c"))
    linked = [str(libraries.cuda), "-pthread", "-o", str(program)]
    subprocess.run([*find_compiler(), source, *linked], check=True)
    card = replace(load_gpu("a100_80gb"), context_gib=0.0, modules_gib=0.25)
    environment = preloaded(os.environ, libraries) | gpu_environment(card, lazy_modules=True)
    done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=100)
    assert done.stdout == "256\n", done.stderr


def test_a_kernel_whose_code_does_not_fit_is_not_launched_until_it_does(on_gpu: Runner) -> None:
    # Of 1,024 MiB, 2 MiB (a segment of 20) and 1,000 leave 4. A kernel brings 8.
    error, taken = on_gpu("launch_without_room", mib=1000, memory_gib=1, modules_gib=0.25)
    assert "out of memory" in error
    assert taken == 8 + 20


def test_graphs_take_whole_pages_together_while_they_are_instantiated(on_gpu: Runner) -> None:
    found = on_gpu("instantiate_graphs", graph_mib=0.75)
    # 0.75, 1.5, 2.25, 3, 2.25, 1.5, 0.75 and 0 MiB in pages of 2.
    assert found["taken"] == [2, 2, 4, 4, 4, 2, 2, 0]
    assert found["twice"] == [INVALID_VALUE] * 4


def test_a_graph_that_does_not_fit_is_refused(on_gpu: Runner) -> None:
    # Of 256 MiB, two graphs of 100 leave 56.
    found = on_gpu("refuse_a_graph", memory_gib=0.25, graph_mib=100)
    assert found == {"errors": [0, 0, OUT_OF_MEMORY, OUT_OF_MEMORY], "kept": None, "taken": 200}


def test_a_forked_process_has_graphs_of_its_own(on_gpu: Runner) -> None:
    # Three graphs of 10 MiB; where the other process has none, one, and that one gone.
    assert on_gpu("instantiate_in_a_child", graph_mib=10) == [30, 0, 10, 0]


def test_pytorch_gives_back_what_its_graphs_take(on_gpu: Runner) -> None:
    assert on_gpu("replace_graphs", graph_mib=10) == [0, 10, 0]


def test_nvml_describes_the_same_card(on_gpu: Runner) -> None:
    not_supported = 3
    assert on_gpu("ask_nvml", memory_gib=2) == {
        "count": 1,
        "name": "NVIDIA A100-SXM4-80GB",
        "memory_mib": [2048, 2048 - 16, 16],  # total, free, used
        "capability": [8, 0],
        "power": not_supported,
    }


def test_freeing_what_is_not_allocated_is_an_error(on_gpu: Runner) -> None:
    success, invalid_value = 0, 1
    inside, first, second, nowhere, null = on_gpu("free_memory_twice")
    assert (first, null) == (success, success)
    assert (inside, second, nowhere) == (invalid_value, invalid_value, invalid_value)


def test_physical_memory_lives_while_its_handle_or_a_mapping_does(on_gpu: Runner) -> None:
    success, invalid_value, out_of_memory = 0, 1, 2
    assert on_gpu("map_memory") == {
        "after_create": 1,
        "map": success,
        "map_again": invalid_value,
        "map_outside": invalid_value,
        "access": success,
        "access_unmapped": invalid_value,
        "release": success,
        "release_again": invalid_value,
        "after_release": 1,  # still mapped
        "free_while_mapped": invalid_value,
        "unmap": success,
        "unmap_again": invalid_value,
        "after_unmap": 0,
        "free": success,
        "free_again": invalid_value,
        "create_too_much": out_of_memory,
    }


def test_addresses_never_run_out_in_a_long_life(on_gpu: Runner) -> None:
    assert on_gpu("reserve_for_ever") == 5000


def test_an_unknown_driver_function_answers_not_supported(on_gpu: Runner) -> None:
    success, not_supported = 0, 801
    assert on_gpu("call_unknown_function") == [success, not_supported]


def test_every_function_of_cudas_headers_answers(on_gpu: Runner) -> None:
    missing = ["cudaMallocManaged", "cudaMemPoolCreate", "cuGraphAddNode_v2", "cuMulticastCreate"]
    assert on_gpu("call_missing_functions", names=missing) == [801] * len(missing)


def test_a_copys_direction_follows_from_its_addresses(on_gpu: Runner) -> None:
    invalid_value, not_registered = 1, 713
    host_memory, device_memory = 1, 2
    assert on_gpu("copy_by_address") == {
        "from_host": "abc",
        "from_device": [0, 0, 0, 0],
        "set": "xx",
        "page_locked": host_memory,
        "device": device_memory,
        "pageable": invalid_value,
        "freed": [0, not_registered],
    }


def test_a_forked_process_takes_its_own_settings(on_gpu: Runner) -> None:
    assert on_gpu("fork_with_other_settings", memory_gib=24) == [24.0, 3.0]
