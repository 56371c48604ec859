"""What the machine has, and which device a run takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from bench.device.build import build_virtual_gpu, check_virtual_gpu
from bench.device.launcher import DeviceKind
from bench.device.wheel import find_torch
from bench.errors import SettingError

CHOICES = ("auto", "virtual", "cuda", "cpu")
PROBE_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Machine:
    """The GPUs there are, the CUDA version that PyTorch was built for (None: CPU only), and why
    there can be no virtual GPU (None: there can)."""

    gpu_names: tuple[str, ...]
    torch_cuda: str | None
    no_virtual_because: str | None


@cache
def probe() -> Machine:
    """Looks at the machine, once a process.

    The driver is asked in a process of its own, as using CUDA here would spoil later forks.
    Raises SettingError if PyTorch is not installed.
    """
    environment = {n: v for n, v in os.environ.items() if n != "LD_PRELOAD"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK_DRIVER],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            env=environment,
        )
        names = tuple(json.loads(done.stdout)) if done.returncode == 0 else ()
    except subprocess.TimeoutExpired:
        names = ()
    return Machine(names, find_torch().cuda, _complaint(check_virtual_gpu))


def resolve_device(requested: str) -> DeviceKind:
    """The kind of device for `device=`; auto takes cuda, else virtual, else cpu.

    Raises SettingError, with what to install or to use, if the requested one cannot be had.
    """
    if requested not in CHOICES:
        raise SettingError(f"device={requested} is not known: choose one of {', '.join(CHOICES)}")
    if requested == "cuda":
        _check_cuda(probe())
        return "cuda"
    if requested == "virtual":
        build_virtual_gpu()
        return "virtual"
    if requested == "cpu":
        return "cpu"
    machine = probe()
    if machine.gpu_names and machine.torch_cuda:
        return "cuda"
    return "cpu" if machine.no_virtual_because else "virtual"


def _check_cuda(machine: Machine) -> None:
    if not machine.gpu_names:
        raise SettingError(
            "device=cuda needs an NVIDIA GPU and its driver, and none was found: "
            "use device=virtual or device=cpu"
        )
    if machine.torch_cuda is None:
        raise SettingError(
            "device=cuda needs a CUDA build of PyTorch and the installed one is CPU only: install "
            "PyPI's (`pip install torch`) or use device=cpu"
        )


def _complaint(check: Callable[[], object]) -> str | None:
    try:
        check()
    except SettingError as error:
        return str(error)
    return None


# Prints the names of the GPUs as JSON, [] if there is no driver.
_ASK_DRIVER = """
import ctypes, json
names = []
try:
    driver = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int()
    if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0:
        for index in range(count.value):
            name = ctypes.create_string_buffer(256)
            device = ctypes.c_int()
            driver.cuDeviceGet(ctypes.byref(device), index)
            driver.cuDeviceGetName(name, 256, device)
            names.append(name.value.decode())
except OSError:
    pass
print(json.dumps(names))
"""
