"""What the tests of this folder share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

DEVICE_JOBS = "tests.bench.device.device_jobs"
LAUNCHER_JOBS = "tests.bench.device.launcher_jobs"

# Runs a function of device_jobs on a virtual card and returns what it returned: the arguments
# alloc_conf, memory_gib, modules_gib, graph_mib and lazy_modules describe the card, the others
# go to the function.
Runner = Callable[..., Any]
