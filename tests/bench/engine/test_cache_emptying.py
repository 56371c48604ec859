"""torch.cuda.empty_cache(): when it is called, what it leaves, and who pays for it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pandas as pd
import pytest

from bench.cli import main
from tests.bench.engine.runs import Run, run
from tests.virtual_gpu import skip_without_virtual_gpu

CALL_S = 110e-6
"""cudaMalloc and cudaFree alike: 100 us, and 10 us of synchronization (conf/costs/default.yaml)."""
# A request every 10 s, so that the engine is idle in between.
TRAFFIC = (
    "model.layers=2", "workload=batch", "workload.rate_rps=0.1", "workload.num_requests=5",
    "workload.duration_s=null", "backend=contiguous", "backend.reserve=oracle",
    "backend.layout=sequence", "sample_interval_s=0.01",
)  # fmt: skip


@pytest.fixture(autouse=True)
def on_a_virtual_gpu() -> None:
    skip_without_virtual_gpu()


@cache
def ran(when: str) -> Run:
    return run(Path(mkdtemp()) / when, *TRAFFIC, f"engine.empty_cache={when}")


def calls(when: str, kind: str) -> int:
    found: int = ran(when).summary["allocator"]["driver_calls"].get(kind, 0)
    return found


def test_never_keeps_what_was_reserved() -> None:
    assert calls("never", "cudaFree") == 0
    reserved = ran("never").timeline["reserved_bytes"]
    assert (reserved.diff().dropna() >= 0).all()


def test_between_gives_back_all_that_is_unused_when_a_request_has_ended() -> None:
    """Five requests that meet no other: each begins anew, with the same number of segments."""
    assert calls("between", "cudaFree") == calls("between", "cudaMalloc")
    assert calls("between", "cudaMalloc") == 5 * calls("never", "cudaMalloc")


def test_step_gives_back_what_each_step_leaves() -> None:
    """Both give back all of a request's segments; this one those of its prompt before the first
    decode, that one after the last."""
    assert calls("step", "cudaFree") == calls("between", "cudaFree")
    step, between = (
        (ran(when).timeline["reserved_bytes"] - ran(when).timeline["allocated_bytes"]).median()
        for when in ("step", "between")
    )
    assert step < between


@pytest.mark.parametrize("when", ["never", "between", "step"])
def test_every_call_is_charged(when: str) -> None:
    made = calls(when, "cudaMalloc") + calls(when, "cudaFree")
    assert ran(when).summary["driver_s"] == pytest.approx(made * CALL_S)


def e2e_s(when: str) -> pd.Series:
    requests = ran(when).requests.sort_values("request_id")
    return requests["end_s"] - requests["sent_s"]


def test_who_waits_for_it() -> None:
    """Between phases nobody does, but for the segments that a prompt has to take anew. In the
    request path the tokens of the same steps come later by what their calls take."""
    never, between, step = (e2e_s(when) for when in ("never", "between", "step"))
    assert between.iloc[0] == pytest.approx(never.iloc[0])
    assert between.iloc[1] - never.iloc[1] < 0.01
    added_s = ran("step").summary["driver_s"] / 5
    assert step.mean() - never.mean() == pytest.approx(added_s, rel=0.1)


def test_it_is_refused_where_there_is_no_cache(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "device=cpu", "engine.empty_cache=step"]) == 2
    assert "engine.empty_cache=step" in capsys.readouterr().err
    assert main(["run", "engine.empty_cache=often"]) == 2
    assert "never, between, step" in capsys.readouterr().err
