"""How long work on the GPU takes, measured as triton.testing.do_bench does, in a CUDA graph.

The work is captured once. Each repeat reads a buffer larger than the L2 cache, so that nothing that
the work reads is in it, and replays the graph between two events. The host queues a repeat in less
time than that reading takes, so that neither launches nor Python are in what the events measure.

do_bench writes the buffer instead. What it leaves in the cache is then written back while the work
runs: tens of MB, as much as a decode of middling size reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

# Which of PyTorch's functions have annotations varies from version to version.
_cuda: Any = torch.cuda

WARM_UP_CALLS, WARM_UP_REPEATS = 3, 10
"""Calls before the capture (compilation, workspaces), and repeats that are not counted."""

FLUSH_BYTES = 256 << 20
"""As Triton's do_bench: at least twice the L2 cache of any card so far."""

LARGEST_COPY_BYTES = 1 << 30


class Times(NamedTuple):
    """Microseconds: the median of the repeats and their 20th and 80th percentiles."""

    median_us: float
    p20_us: float
    p80_us: float


class Timer:
    """Times work on the current GPU."""

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self._flush = torch.zeros(FLUSH_BYTES // 4, dtype=torch.float32, device="cuda")
        self._largest = torch.empty((), dtype=torch.float32, device="cuda")

    def time(self, work: Callable[[], object]) -> Times:
        """`work` launches kernels on the current stream, the same ones at each call."""
        graph = _captured(work)
        events = [(_event(), _event()) for _ in range(WARM_UP_REPEATS + self._repeats)]
        for start, end in events:
            torch.amax(self._flush, dim=0, out=self._largest)
            start.record()
            graph.replay()
            end.record()
        _cuda.synchronize()
        return percentiles_us([start.elapsed_time(end) for start, end in events[WARM_UP_REPEATS:]])


def percentiles_us(times_ms: list[float]) -> Times:
    """Of repeats in milliseconds."""
    quantiles = torch.tensor([0.5, 0.2, 0.8], dtype=torch.float64)
    times_us = 1000 * torch.tensor(times_ms, dtype=torch.float64)
    return Times(*times_us.quantile(quantiles).tolist())


def copy_bandwidth_gb_s(timer: Timer) -> float:
    """Bytes read and bytes written a second by a large copy inside the GPU's memory, in 1e9."""
    free, _ = _cuda.mem_get_info()
    source = torch.ones(min(LARGEST_COPY_BYTES, free // 4), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / timer.time(lambda: target.copy_(source)).median_us / 1000


def floor_us(timer: Timer) -> float:
    """What a kernel that does next to nothing takes, measured alike: no row can be below."""
    element = torch.empty(1, device="cuda")
    return timer.time(lambda: element.zero_()).median_us


def _captured(work: Callable[[], object]) -> Any:
    stream = _cuda.Stream()
    stream.wait_stream(_cuda.current_stream())
    with _cuda.stream(stream):
        for _ in range(WARM_UP_CALLS):
            work()
    _cuda.current_stream().wait_stream(stream)
    _cuda.synchronize()
    graph = _cuda.CUDAGraph()
    with _cuda.graph(graph):
        work()
    return graph


def _event() -> Any:
    return _cuda.Event(enable_timing=True)
