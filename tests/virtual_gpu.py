"""Runs a function in a process of its own on the virtual GPU, for tests."""

from __future__ import annotations

import atexit
import functools
from typing import Any

import pytest

from bench.device.build import check_virtual_gpu
from bench.device.launcher import Job, Launcher
from bench.device.virtual import allocator_environment, gpu_environment
from bench.errors import SettingError
from bench.packaged import load_gpu


@functools.cache
def _launcher() -> Launcher:
    launcher = Launcher("virtual", modules=("torch", "bench.run", "hypothesis"))
    atexit.register(launcher.close)
    return launcher


def skip_without_virtual_gpu() -> None:
    """Skips a test where this machine can have no virtual GPU. Sources that do not compile are no
    such reason: they fail."""
    try:
        check_virtual_gpu()
    except SettingError as error:
        pytest.skip(str(error))


def run_on_virtual_gpu(
    target: str, payload: dict[str, Any], *, alloc_conf: str = "", gpu: str = "a100_80gb"
) -> Any:
    """What the job returned; its failure is the test's."""
    environment = gpu_environment(load_gpu(gpu)) | allocator_environment(alloc_conf)
    finished = _launcher().run(Job(target, payload, environment))
    if finished.status != "ok":
        pytest.fail(f"{target} {payload}: {finished.traceback or finished.cause}", pytrace=False)
    return finished.result
