"""What runs in a process on the GPU: one job for the device, one for each implementation.

An implementation has a process of its own, as an illegal access in a kernel ends all use of CUDA
in its process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from bench.device.job import report_progress
from bench.errors import SettingError
from bench.kernels.problem import TOLERANCES, Problem, make_problem, reference, relative_error
from bench.kernels.providers.base import Prepare, Unsupported
from bench.kernels.rows import Device, Row
from bench.kernels.shape import Shape
from bench.kernels.timing import Timer, copy_bandwidth_gb_s, floor_us
from bench.kernels.virtual import REFUSAL, on_virtual_gpu


def measure_device(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A Device as a dict. The payload has the `repeats`. Raises SettingError without a real GPU."""
    require_gpu()
    timer = Timer(payload["repeats"])
    name = torch.cuda.get_device_name()
    return asdict(Device(name, copy_bandwidth_gb_s(timer), floor_us(timer)))


def measure_provider(payload: Mapping[str, Any]) -> None:
    """Reports a row (as a dict) for each shape and block size as progress. The payload has the
    `provider`, its `module`, `shapes`, `block_sizes` and `repeats`. Raises SettingError without a
    real GPU, and CUDA's error where the GPU can be used no more."""
    require_gpu()
    prepare: Prepare = import_module(payload["module"]).prepare
    timer = Timer(payload["repeats"])
    shapes = [Shape(**shape) for shape in payload["shapes"]]
    for row in measured(payload["provider"], prepare, shapes, payload["block_sizes"], timer):
        report_progress({"row": asdict(row)})


def require_gpu() -> None:
    """Raises SettingError where this process has no GPU, or a virtual one."""
    if on_virtual_gpu():
        raise SettingError(REFUSAL)
    if not torch.cuda.is_available():
        raise SettingError(
            f"kernels: PyTorch {torch.__version__} cannot use this machine's GPU: update the "
            "NVIDIA driver, or install a PyTorch build that knows the card."
        )


def measured(
    provider: str,
    prepare: Prepare,
    shapes: Sequence[Shape],
    block_sizes: Sequence[int | None],
    timer: Timer,
    device: str = "cuda",
) -> Iterator[Row]:
    """A row for each shape and block size, in that order."""
    for shape in shapes:
        given = _given(shape, device)
        for size in block_sizes:
            if given is None:
                yield Row(provider, shape, size, "left out", note=_too_large(shape))
            else:
                yield _row(provider, prepare, *given, size, timer)
        del given  # or it would be there beside the next


def _given(shape: Shape, device: str) -> tuple[Problem, Tensor] | None:
    """A problem and what it must give; None if they do not fit in memory."""
    try:
        problem = make_problem(shape, device)
        return problem, reference(problem)
    except torch.OutOfMemoryError:
        return None


def _row(
    provider: str,
    prepare: Prepare,
    problem: Problem,
    expected: Tensor,
    block_size: int | None,
    timer: Timer,
) -> Row:
    shape = problem.shape
    try:
        decode = prepare(problem, block_size)
        error = relative_error(decode(), expected)
        if not error <= TOLERANCES[shape.dtype]:
            return Row(provider, shape, block_size, "failed", relative_error=error,
                       note=_disagrees(error, shape.dtype))  # fmt: skip
        return Row(provider, shape, block_size, "timed", *timer.time(decode), error)
    except Unsupported as reason:
        return Row(provider, shape, block_size, "left out", note=str(reason))
    except torch.OutOfMemoryError:
        return Row(provider, shape, block_size, "left out", note=_too_large(shape))
    except Exception as error:  # of a library of others: this row's, not the end of all
        if problem.q.is_cuda:
            torch.cuda.synchronize()  # raises where the GPU can be used no more
        return Row(provider, shape, block_size, "failed", note=_first_line(error))


def _disagrees(error: float, dtype: str) -> str:
    return f"its output is off by {error:.2g} of fp32's ({TOLERANCES[dtype]:g} is allowed)"


def _too_large(shape: Shape) -> str:
    gib = shape.kv_bytes / 2**30
    return f"does not fit in memory: {gib:.1f} GiB of K and V, twice, beside what it works in"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
