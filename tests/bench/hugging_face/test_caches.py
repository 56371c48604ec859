"""Hugging Face's caches behind our contract, and whole runs of engine=transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.cells import _modules, cell_job
from bench.device.launcher import Job, Launcher
from bench.device.virtual import gpu_environment
from bench.packaged import load_gpu
from tests.bench.engine.runs import Run, composed, read
from tests.virtual_gpu import skip_without_virtual_gpu

# A small Llama in little memory; requests of some hundred tokens that do not all fit.
SMALL = (
    "model=llama2_7b", "model.layers=4", "gpu=a100_40gb", "kv_budget=128MiB", "workload=chat",
    "max_model_len=1024", "workload.rate_rps=40", "workload.num_requests=25", "sample_interval_s=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """Imports the library once."""
    pytest.importorskip("transformers")
    skip_without_virtual_gpu()
    cell = composed(tmp_path_factory.mktemp("modules") / "run", "engine=transformers", *SMALL)
    with Launcher("virtual", modules=_modules([cell])) as started:
        yield started


def run_job(launcher: Launcher, name: str, payload: dict[str, Any]) -> Any:
    environment = gpu_environment(load_gpu("a100_80gb"))
    job = Job(f"tests.bench.hugging_face.cache_jobs:{name}", payload, environment)
    finished = launcher.run(job)
    if finished.status != "ok":
        pytest.fail(finished.traceback or str(finished.cause), pytrace=False)
    return finished.result


def run(launcher: Launcher, out: Path, *overrides: str) -> Run:
    finished = launcher.run(cell_job(composed(out, *SMALL, *overrides), None))
    if finished.status != "ok":
        pytest.fail(finished.traceback or str(finished.cause), pytrace=False)
    return read(out)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_the_books_are_right_whatever_is_asked(launcher: Launcher, cache: str) -> None:
    refused = run_job(launcher, "life", {"cache": cache, "seed": 1, "steps": 40})
    assert refused["reserve"] > 0
    assert (refused["extend"] > 0) == (cache == "dynamic")


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_budget_is_filled_to_the_byte(launcher: Launcher, cache: str) -> None:
    """A plane of 512 tokens is 2 MiB: the allocator rounds nothing."""
    assert run_job(launcher, "full", {"cache": cache}) == [True, True, False]


def test_a_dynamic_cache_grows_a_layer_at_a_time(launcher: Launcher) -> None:
    """K of 257 tokens in one layer takes 257 x 4 KiB; it is there beside the old one, and beside
    the new token's own K and V (4 KiB) and those of the other 7 layers (2 x 4 KiB each)."""
    found = run_job(launcher, "growth", {})
    assert found["held"] == 257 * 8 * 2 * 4096
    one_plane = 257 * 4096
    assert one_plane <= found["peak_above"] <= one_plane + 4096 + 7 * 2 * 4096 + 2 * 4096
    assert found["copied_bytes"] == 256 * 8 * 2 * 4096
    assert found["copies"] == 2 * 8


def test_beams_take_their_tensors_anew(launcher: Launcher) -> None:
    """Two rows of 100 tokens of 16 KiB are copied to be reordered, and again to be longer."""
    slots, copied_bytes, copies = run_job(launcher, "beams", {})
    assert slots == 2 * 101
    assert copied_bytes == 2 * (2 * 100 * 16_384)
    assert copies == 2 * (2 * 2)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_a_run_has_the_files_and_terms_of_any_other(
    launcher: Launcher, tmp_path: Path, cache: str
) -> None:
    found = run(launcher, tmp_path / "run", "engine=transformers", f"engine.cache={cache}")
    summary, timeline, unfilled = found.summary, found.timeline, found.unfilled
    assert (summary["engine"], summary["backend"]) == ("transformers", f"transformers_{cache}")
    counts = summary["requests"]
    assert counts["sent"] == counts["completed"] + counts["rejected"] == 25, "some are too long"
    assert counts["completed"] > 12
    terms = timeline[["token_states_bytes", "unfilled_bytes", "rounding_bytes", "cached_bytes",
                      "free_bytes"]]  # fmt: skip
    assert (terms >= 0).all(axis=None)
    assert (terms.sum(axis=1) == timeline["kv_budget_bytes"]).all()
    split = unfilled[["reservation_bytes", "internal_bytes", "undetermined_bytes"]]
    assert list(split.sum(axis=1)) == list(timeline["unfilled_bytes"])
    shares = summary["memory_bound"]
    assert shares["share_of_time"] > 0
    assert (tmp_path / "run" / "incidents.jsonl").read_text(encoding="utf-8")
    if cache == "dynamic":
        assert summary["preemptions"] > 0
        assert summary["held_waste"] == 0, "a slot is taken when its token is computed"
    else:
        assert summary["preemptions"] == 0
        assert summary["held_waste"] > 0.4, "of 1,024 slots a few hundred are used"


def test_the_library_takes_the_time_of_our_buffers_that_grow(
    launcher: Launcher, tmp_path: Path
) -> None:
    """The same passes and copies over another layout: with room for all, times are the same but for
    driver calls."""
    room = ("kv_budget=4GiB", "workload.num_requests=6")
    theirs = run(launcher, tmp_path / "theirs", "engine=transformers", *room)
    ours = run(
        launcher, tmp_path / "ours", "backend=contiguous", "backend.reserve=grow",
        "engine.one_at_a_time=true", *room,
    )  # fmt: skip
    assert theirs.summary["step_s"]["modelled"] - theirs.summary["driver_s"] == pytest.approx(
        ours.summary["step_s"]["modelled"] - ours.summary["driver_s"], rel=0.001
    )
    assert theirs.summary["kv_budget_bytes"] == ours.summary["kv_budget_bytes"]
    assert theirs.summary["throughput"] == pytest.approx(ours.summary["throughput"], rel=0.02)
