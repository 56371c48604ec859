from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def public_trace() -> Callable[[str], Path]:
    """The path of a public trace; the test is skipped where FRAGBENCH_TRACES is not set."""
    folder = os.environ.get("FRAGBENCH_TRACES")
    if not folder:
        pytest.skip("FRAGBENCH_TRACES is not set: the public traces are not here")
    return lambda name: Path(folder) / name
