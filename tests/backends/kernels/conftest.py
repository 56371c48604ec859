"""Both implementations of paged attention, run alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any

import pytest
import torch

from tests.backends.kernels.interpreter import interpreting_process

Run = Callable[..., Any]
"""run(job, *arguments): the job gets the name of an implementation first."""


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Executor]:
    with interpreting_process() as process:
        yield process


@pytest.fixture
def run_torch() -> Iterator[Run]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tests already run side by side
    yield lambda job, *arguments: job("torch", *arguments)
    torch.set_num_threads(threads)


@pytest.fixture
def run_triton(interpreter: Executor) -> Run:
    return lambda job, *arguments: interpreter.submit(job, "triton", *arguments).result()


@pytest.fixture(params=["torch", "triton"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.getfixturevalue(f"run_{request.param}")  # type: ignore[no-any-return]
