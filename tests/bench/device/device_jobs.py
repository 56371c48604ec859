"""What the tests of the virtual GPU run, in forked processes."""

from __future__ import annotations

import ctypes
import os
import random
from contextlib import suppress
from typing import Any

import torch

from bench.device.stats import AllocatorReader, DriverCalls, external_fragmentation, hold_back
from bench.errors import SettingError

MIB = 1 << 20
PAGE = 2 * MIB


def tensor(mib: float) -> torch.Tensor:
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")


def reserved_mib() -> int:
    return torch.cuda.memory_reserved() // MIB


# --- facts known from real GPUs -------------------------------------------------------------------


def sizes_in_a_private_pool(payload: dict[str, Any]) -> list[int]:
    """Reserved MiB after 8 x 16 MiB, and after they are freed and 4 x 32 MiB are taken."""
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        small = [tensor(16) for _ in range(8)]
        before = reserved_mib()
        del small
        large = [tensor(32) for _ in range(4)]
        after = reserved_mib()
        del large
    return [before, after]


def grow(payload: dict[str, Any]) -> list[int]:
    """Reserved MiB after each of eight allocations of 16 MiB."""
    held, sizes = [], []
    for _ in range(8):
        held.append(tensor(16))
        sizes.append(reserved_mib())
    return sizes


def run_out_of_memory(payload: dict[str, Any]) -> str:
    """The error's text with 60 MiB of a segment of 100 in use and nothing else."""
    whole = tensor(100)
    del whole
    part = tensor(60)
    try:
        tensor(3 * 1024)
    except torch.OutOfMemoryError as error:
        return str(error)
    finally:
        del part
    raise AssertionError("3 GiB fitted")


def dump_snapshot(payload: dict[str, Any]) -> dict[str, int]:
    memory: Any = torch.cuda.memory
    memory._record_memory_history(max_entries=1000)
    held = [tensor(30), tensor(5)]
    del held[1]
    memory._dump_snapshot(payload["path"])
    return {"reserved": torch.cuda.memory_reserved(), "allocated": torch.cuda.memory_allocated()}


def allocate_bytes(payload: dict[str, Any]) -> int:
    """What the allocator counts as allocated for a request of some bytes."""
    held = torch.empty(payload["bytes"], dtype=torch.uint8, device="cuda")
    allocated = torch.cuda.memory_allocated()
    del held
    return allocated


def reuse_a_large_block(payload: dict[str, Any]) -> int:
    """Reserved MiB after 200 MiB are freed and 50 taken."""
    large = tensor(200)
    del large
    small = tensor(50)
    reserved = reserved_mib()
    del small
    return reserved


def collect_garbage(payload: dict[str, Any]) -> int:
    """Reserved MiB, of 1,024, after two blocks of 300 MiB are freed and 400 taken."""
    torch.cuda.set_per_process_memory_fraction(0.9)  # at 1 PyTorch never collects
    freed = [tensor(300), tensor(300)]
    del freed
    held = tensor(400)
    reserved = reserved_mib()
    del held
    return reserved


# --- the device -----------------------------------------------------------------------------------


# Of CUdevice_attribute in cuda.h. PyTorch's and Triton's launch heuristics divide by these.
DIVISORS = {
    "MAX_THREADS_PER_BLOCK": 1,
    "WARP_SIZE": 10,
    "MAX_REGISTERS_PER_BLOCK": 12,
    "MULTIPROCESSOR_COUNT": 16,
    "GLOBAL_MEMORY_BUS_WIDTH": 37,
    "MAX_THREADS_PER_MULTIPROCESSOR": 39,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 81,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 82,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 106,
}
ECC_ENABLED, SINGLE_TO_DOUBLE_RATIO, CLUSTER_LAUNCH = 32, 87, 120


def attribute(number: int) -> int:
    value = ctypes.c_int()
    ctypes.CDLL(None).cuDeviceGetAttribute(ctypes.byref(value), number, 0)
    return value.value


def describe_device(payload: dict[str, Any]) -> dict[str, Any]:
    properties: Any = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "capability": [properties.major, properties.minor],
        "multiprocessors": properties.multi_processor_count,
        "shared_memory_per_block_optin": properties.shared_memory_per_block_optin,
        "l2_cache": properties.L2_cache_size,
        "total": properties.total_memory,
        "free": torch.cuda.mem_get_info()[0],
        "device_count": torch.cuda.device_count(),
        "zeros": [name for name, number in DIVISORS.items() if not attribute(number)],
        "clusters": attribute(CLUSTER_LAUNCH),
        "has_ecc": attribute(ECC_ENABLED),
        "double_to_single": attribute(SINGLE_TO_DOUBLE_RATIO),
    }


def fill(payload: dict[str, Any]) -> dict[str, Any]:
    """Takes all memory in one piece, then a page too much."""
    free = torch.cuda.mem_get_info()[0]
    whole = torch.empty(free, dtype=torch.uint8, device="cuda")
    left = torch.cuda.mem_get_info()[0]
    del whole
    torch.cuda.empty_cache()
    try:
        torch.empty(free + 1, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return {"free": free, "left": left, "one_more": "refused"}
    return {"free": free, "left": left, "one_more": "taken"}


def addresses_of_a_random_life(payload: dict[str, Any]) -> list[int]:
    draw = random.Random(payload["seed"])
    held: list[torch.Tensor] = []
    addresses = []
    for _ in range(500):
        if held and draw.random() < 0.45:
            held.pop(draw.randrange(len(held)))
        else:
            held.append(tensor(draw.randint(1, 300) / 4))
            addresses.append(held[-1].data_ptr())
        if draw.random() < 0.02:
            torch.cuda.empty_cache()
    return addresses


def read_values_back(payload: dict[str, Any]) -> dict[str, Any]:
    pinned = torch.arange(4).pin_memory()
    there_and_back = torch.arange(4).cuda().cpu()
    return {
        "pinned": pinned.is_pinned(),
        "pinned_values": pinned.tolist(),
        "pageable_is_pinned": torch.arange(4).is_pinned(),
        "device_values": there_and_back.tolist(),
        "item": torch.ones(1, device="cuda").item(),
    }


def capture_a_graph(payload: dict[str, Any]) -> dict[str, Any]:
    """Launches of the graph, and which streams say that they are captured, before and during it."""
    source, other = tensor(1), torch.cuda.Stream()
    captured = [torch.cuda.is_current_stream_capturing()]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured.append(torch.cuda.is_current_stream_capturing())
        with torch.cuda.stream(other):
            captured.append(torch.cuda.is_current_stream_capturing())
        result = source + source
    graph.replay()
    captured.append(torch.cuda.is_current_stream_capturing())
    assert result.shape == source.shape
    return {"launches": DriverCalls().read()["graph_launch"], "captured": captured}


def ask_nvml(payload: dict[str, Any]) -> dict[str, Any]:
    """What NVML says with 16 MiB taken, and its answer to what the card lacks."""
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    held = tensor(16)
    device, count = ctypes.c_void_p(), ctypes.c_uint()
    name, memory = ctypes.create_string_buffer(100), (ctypes.c_uint64 * 3)()
    version = (ctypes.c_int * 2)()
    nvml.nvmlInit_v2()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
    nvml.nvmlDeviceGetName(device, name, 100)
    nvml.nvmlDeviceGetMemoryInfo(device, memory)
    nvml.nvmlDeviceGetCudaComputeCapability(
        device, version, ctypes.byref(version, ctypes.sizeof(ctypes.c_int))
    )
    del held
    return {
        "count": count.value,
        "name": name.value.decode(),
        "memory_mib": [part // MIB for part in memory],
        "capability": list(version),
        "power": nvml.nvmlDeviceGetPowerUsage(device, None),
    }


def fork_with_other_settings(payload: dict[str, Any]) -> list[float]:
    """The card's GiB that this process finds in the driver, and one forked after that."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()

    def ask_driver() -> float:
        ctypes.CDLL(None).cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
        return total.value / (1 << 30)

    own = ask_driver()
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.environ["FRAGBENCH_VGPU_MEMORY_BYTES"] = str(3 << 30)
        os.write(writer, str(ask_driver()).encode())
        os._exit(0)
    os.wait()
    return [own, float(os.read(reader, 100))]


# --- memory beside the allocator ------------------------------------------------------------------


def taken_mib() -> int:
    """MiB of the card that are taken, as CUDA and NVML say it."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    memory = (ctypes.c_uint64 * 3)()
    ctypes.CDLL(None).cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    ctypes.CDLL("libnvidia-ml.so.1").nvmlDeviceGetMemoryInfo(None, memory)
    taken = total.value - free.value
    assert list(memory) == [total.value, free.value, taken]
    return taken // MIB


def launch_kernels(payload: dict[str, Any]) -> list[int]:
    """MiB taken at first and after each launch of kernels 1, 1, 2, 3, ... to 34, by `launch`."""
    found = [taken_mib()]
    for kernel in (1, *range(1, 35)):
        arguments = [ctypes.c_void_p(kernel)] * 11
        assert getattr(ctypes.CDLL(None), payload["launch"])(*arguments) == SUCCESS
        found.append(taken_mib())
    return found


def launch_kernels_in_a_child(payload: dict[str, Any]) -> list[int]:
    """MiB taken after two kernels, in a process forked then, and after one of them there."""
    launch = ctypes.CDLL(None).cuLaunchKernel
    for kernel in (1, 2):
        launch(*[ctypes.c_void_p(kernel)] * 11)
    found = [taken_mib()]
    reader, writer = os.pipe()
    if os.fork() == 0:
        before = taken_mib()
        launch(*[ctypes.c_void_p(2)] * 11)
        os.write(writer, bytes([before, taken_mib()]))
        os._exit(0)
    os.wait()
    return found + list(os.read(reader, 2))


def launch_without_room(payload: dict[str, Any]) -> tuple[str, int]:
    """The error of a launch beside a tensor of `mib`, and MiB taken once that is gone and it is
    tried again."""
    other, held = tensor(2), tensor(payload["mib"])
    error = ""
    try:
        held.add_(1)
    except torch.AcceleratorError as refused:
        error = str(refused).splitlines()[0]
    del held
    torch.cuda.empty_cache()
    other.add_(1)
    return error, taken_mib()


def instantiate_graphs(payload: dict[str, Any]) -> dict[str, Any]:
    """MiB taken with each of four graphs more and each of them less; errors of misuse."""
    cuda = ctypes.CDLL(None)
    instances, found = [], []
    for name in ("cudaGraphInstantiate", "cudaGraphInstantiateWithFlags", "cuGraphInstantiate"):
        instances.append(ctypes.c_void_p())
        assert getattr(cuda, name)(ctypes.byref(instances[-1]), None, 0) == SUCCESS
        found.append(taken_mib())
    instances.append(ctypes.c_void_p())
    asked = (ctypes.c_uint64 * 4)()
    assert cuda.cuGraphInstantiateWithParams(ctypes.byref(instances[-1]), None, asked) == SUCCESS
    found.append(taken_mib())
    twice = []
    for instance, prefix in zip(instances, ("cuda", "cu", "cuda", "cu"), strict=True):
        assert getattr(cuda, prefix + "GraphExecDestroy")(instance) == SUCCESS
        found.append(taken_mib())
        twice.append(getattr(cuda, prefix + "GraphExecDestroy")(instance))
    return {"taken": found, "twice": twice}


def refuse_a_graph(payload: dict[str, Any]) -> dict[str, Any]:
    """The errors of four graphs, the last one's handle, and MiB taken then."""
    cuda = ctypes.CDLL(None)
    instance = ctypes.c_void_p()
    errors = [cuda.cudaGraphInstantiate(ctypes.byref(instance), None, 0) for _ in range(4)]
    return {"errors": errors, "kept": instance.value, "taken": taken_mib()}


def instantiate_in_a_child(payload: dict[str, Any]) -> list[int]:
    """MiB taken after three graphs, in a process forked then, with one more there, without it."""
    cuda, instance = ctypes.CDLL(None), ctypes.c_void_p()
    for _ in range(3):
        assert cuda.cudaGraphInstantiate(ctypes.byref(instance), None, 0) == SUCCESS
    found = [taken_mib()]
    reader, writer = os.pipe()
    if os.fork() == 0:
        found = [taken_mib()]
        cuda.cudaGraphInstantiate(ctypes.byref(instance), None, 0)
        found.append(taken_mib())
        cuda.cudaGraphExecDestroy(instance)
        os.write(writer, bytes([*found, taken_mib()]))
        os._exit(0)
    os.wait()
    return found + list(os.read(reader, 3))


def replace_graphs(payload: dict[str, Any]) -> list[int]:
    """MiB taken beside PyTorch's own memory before a graph, with it, and when it is gone."""

    def beside() -> int:
        return taken_mib() - reserved_mib()

    held = tensor(1)
    found = [beside()]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held.add_(1)
    found.append(beside())
    graph.reset()
    return [*found, beside()]


# --- the driver's interface -----------------------------------------------------------------------

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_SUPPORTED = 0, 1, 2, 801


def free_memory_twice(payload: dict[str, Any]) -> list[int]:
    """The errors of freeing memory, freeing it again, and freeing what never was."""
    cuda = ctypes.CDLL(None)
    pointer = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1)) == SUCCESS
    inside = ctypes.c_void_p((pointer.value or 0) + 512)
    nowhere = ctypes.c_void_p(4096)
    return [cuda.cudaFree(each) for each in (inside, pointer, pointer, nowhere, None)]


def map_memory(payload: dict[str, Any]) -> dict[str, int]:
    """Physical memory lives while its handle or a mapping does, and misuse is refused."""
    cuda = ctypes.CDLL(None)
    address, handle = ctypes.c_uint64(), ctypes.c_uint64()
    size = ctypes.c_size_t(4 * PAGE)
    part = ctypes.c_size_t(PAGE)

    def used_pages() -> int:
        free, total = torch.cuda.mem_get_info()
        return (total - free) // PAGE

    def map_at(page: int) -> int:
        place = ctypes.c_uint64(address.value + page * PAGE)
        return int(cuda.cuMemMap(place, part, ctypes.c_size_t(0), handle, ctypes.c_uint64(0)))

    found: dict[str, int] = {}
    cuda.cuMemAddressReserve(ctypes.byref(address), size, ctypes.c_size_t(0), None, None)
    cuda.cuMemCreate(ctypes.byref(handle), part, None, ctypes.c_uint64(0))
    found["after_create"] = used_pages()
    found["map"] = map_at(1)
    found["map_again"] = map_at(1)
    found["map_outside"] = map_at(4)
    second = ctypes.c_uint64(address.value + PAGE)
    found["access"] = cuda.cuMemSetAccess(second, part, None, ctypes.c_size_t(1))
    found["access_unmapped"] = cuda.cuMemSetAccess(address, part, None, ctypes.c_size_t(1))
    found["release"] = cuda.cuMemRelease(handle)
    found["release_again"] = cuda.cuMemRelease(handle)
    found["after_release"] = used_pages()
    found["free_while_mapped"] = cuda.cuMemAddressFree(address, size)
    found["unmap"] = cuda.cuMemUnmap(second, part)
    found["unmap_again"] = cuda.cuMemUnmap(second, part)
    found["after_unmap"] = used_pages()
    found["free"] = cuda.cuMemAddressFree(address, size)
    found["free_again"] = cuda.cuMemAddressFree(address, size)
    too_much = ctypes.c_size_t(1 << 45)
    found["create_too_much"] = cuda.cuMemCreate(
        ctypes.byref(handle), too_much, None, ctypes.c_uint64(0)
    )
    return found


def reserve_for_ever(payload: dict[str, Any]) -> int:
    """Reserves and frees 100 GiB of addresses 5,000 times, in sizes that differ."""
    cuda = ctypes.CDLL(None)
    address = ctypes.c_uint64()
    for turn in range(5000):
        size = ctypes.c_size_t((50_000 + turn) * PAGE)
        if cuda.cuMemAddressReserve(ctypes.byref(address), size, None, None, None):
            return turn
        cuda.cuMemAddressFree(address, size)
    return 5000


def call_unknown_function(payload: dict[str, Any]) -> list[int]:
    cuda = ctypes.CDLL(None)
    function = ctypes.c_void_p()
    found = cuda.cuGetProcAddress(b"cuNoSuchThing", ctypes.byref(function), 13000, 0)
    return [found, ctypes.CFUNCTYPE(ctypes.c_int)(function.value or 0)()]


def call_missing_functions(payload: dict[str, Any]) -> list[int]:
    """Functions of CUDA's headers that are linked to, not looked up."""
    cuda = ctypes.CDLL(None)
    return [getattr(cuda, name)() for name in payload["names"]]


def copy_by_address(payload: dict[str, Any]) -> dict[str, Any]:
    """The driver's copies, of page-locked memory that it made, and what it says of pointers."""
    cuda = ctypes.CDLL(None)
    page_locked, device, kind = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint()
    length = ctypes.c_size_t(4)
    cuda.cuMemHostAlloc(ctypes.byref(page_locked), length, 0)
    cuda.cuMemAlloc_v2(ctypes.byref(device), length)
    host = (ctypes.c_char * 4).from_address(page_locked.value)
    other = ctypes.create_string_buffer(b"abc", 4)
    found: dict[str, Any] = {}
    cuda.cuMemcpy(page_locked, other, length)
    found["from_host"] = host.value.decode()
    cuda.cuMemcpy(device, page_locked, length)
    cuda.cuMemcpyAsync(page_locked, device, length, None)
    found["from_device"] = list(host.raw)
    cuda.cuMemsetD8_v2(page_locked, ord("x"), ctypes.c_size_t(2))
    found["set"] = host.value.decode()
    for name, pointer in (("page_locked", page_locked), ("device", device), ("pageable", other)):
        error = cuda.cuPointerGetAttribute(ctypes.byref(kind), MEMORY_TYPE, pointer)
        found[name] = error or kind.value
    found["freed"] = [cuda.cuMemFreeHost(page_locked), cuda.cuMemHostUnregister(page_locked)]
    return found


MEMORY_TYPE = 2  # of CUpointer_attribute; its values are HOST = 1 and DEVICE = 2


# --- statistics -----------------------------------------------------------------------------------


def read_statistics(payload: dict[str, Any]) -> dict[str, Any]:
    """Blocks of 16 MiB in use, free and in use, and 100 MiB free after them."""
    reader = AllocatorReader()
    first, middle, last, own = tensor(16), tensor(16), tensor(16), tensor(100)
    del middle, own
    stats = reader.read()
    largest = reader.largest_free_bytes()
    flat = torch.cuda.memory_stats()
    del first, last
    return {
        "stats": {name: getattr(stats, name) for name in stats.__slots__},
        "total_free": stats.total_free_bytes,
        "largest": largest,
        "index": external_fragmentation(largest, stats.total_free_bytes),
        "flat": {
            "allocated_bytes": flat["allocated_bytes.all.current"],
            "requested_bytes": flat["requested_bytes.all.current"],
            "reserved_bytes": flat["reserved_bytes.all.current"],
            "active_bytes": flat["active_bytes.all.current"],
            "peak_reserved_bytes": flat["reserved_bytes.all.peak"],
        },
    }


def find_largest_free(payload: dict[str, Any]) -> list[dict[str, int | None]]:
    """For random states: the largest free block, how many retries PyTorch needs to serve it, and
    how many for a little more (None: it cannot be had at all)."""
    draw = random.Random(payload["seed"])
    reader = AllocatorReader()
    held: list[torch.Tensor] = []
    found = []
    for _ in range(payload["states"]):
        for _ in range(30):
            if held and draw.random() < 0.5:
                held.pop(draw.randrange(len(held)))
            else:
                with suppress(torch.OutOfMemoryError):
                    held.append(tensor(2 * draw.randint(6, 60)))
        largest = reader.largest_free_bytes()
        retries = [retries_to_serve(reader, largest), retries_to_serve(reader, largest + 20 * MIB)]
        found.append({"largest": largest, "retries": retries[0], "retries_for_more": retries[1]})
    return found


def retries_to_serve(reader: AllocatorReader, n_bytes: int) -> int | None:
    before = reader.read().num_alloc_retries
    try:
        torch.empty(n_bytes, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return None
    return reader.read().num_alloc_retries - before


def leave_little(payload: dict[str, Any]) -> dict[str, Any]:
    """Memory that PyTorch finds before, while and after most is held back."""
    before = torch.cuda.mem_get_info()[0]
    with hold_back(before - 100 * MIB):
        during = torch.cuda.mem_get_info()[0]
        try:
            tensor(101)
            outcome = "taken"
        except torch.OutOfMemoryError:
            outcome = "refused"
    after = torch.cuda.mem_get_info()[0]
    try:
        hold_back(after + PAGE)
        error = ""
    except SettingError as caught:
        error = str(caught)
    return {
        "before": before,
        "during": during,
        "after": after,
        "outcome": outcome,
        "error": error,
    }


def count_driver_calls(payload: dict[str, Any]) -> dict[str, Any]:
    calls = DriverCalls()
    before = calls.read()
    held = [tensor(20), tensor(20)]
    del held
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    after = calls.read()
    changed = {kind: after[kind] - before[kind] for kind in after if after[kind] != before[kind]}
    return {"changed": changed, "peak": calls.peak_bytes}
