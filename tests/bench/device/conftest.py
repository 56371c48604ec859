"""One fork server for all tests of this folder; each job is a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bench.device.launcher import Job, Launcher
from bench.device.virtual import allocator_environment, gpu_environment
from bench.packaged import load_gpu
from tests.bench.device.support import DEVICE_JOBS, Runner
from tests.virtual_gpu import skip_without_virtual_gpu


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    skip_without_virtual_gpu()
    with Launcher("virtual", modules=("torch", "bench.device.stats")) as started:
        yield started


@pytest.fixture
def on_gpu(launcher: Launcher) -> Runner:
    """Runs a function of device_jobs on a virtual card of some GiB and returns its result."""

    def run(
        function: str,
        *,
        alloc_conf: str = "",
        memory_gib: float = 24.0,
        modules_gib: float = 0.0,
        graph_mib: float = 0.0,
        lazy_modules: bool = True,
        **payload: Any,
    ) -> Any:
        gpu = replace(
            load_gpu("a100_80gb"),
            memory_gib=memory_gib,
            context_gib=0.0,
            modules_gib=modules_gib,
            graph_mib=graph_mib,
        )
        environment = gpu_environment(gpu, lazy_modules=lazy_modules)
        environment |= allocator_environment(alloc_conf)
        finished = launcher.run(Job(f"{DEVICE_JOBS}:{function}", payload, environment))
        if finished.status != "ok":
            pytest.fail(f"{function}: {finished.traceback or finished.cause}", pytrace=False)
        return finished.result

    return run
