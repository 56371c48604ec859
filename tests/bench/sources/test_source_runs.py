"""Whole runs with sources: settings, files, and what they leave alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bench.cells import cell_job
from bench.cli import main
from bench.experiment import compose_cells
from bench.plugins import make_all
from tests.bench.engine.runs import composed, run
from tests.bench.sources.support import NAMES, settings
from tests.virtual_gpu import _launcher, skip_without_virtual_gpu
from workloads.base import WorkloadError

SHORT = ("workload.num_requests=12", "workload.rate_rps=4", "sample_interval_s=0.5",
         "sources.growing_kv.every_tokens=16")  # fmt: skip
ALL = f"sources=[{','.join(NAMES)}]"
TERMS = ("token_states_bytes", "unfilled_bytes", "rounding_bytes", "cached_bytes", "free_bytes")


@pytest.mark.parametrize("backend", ["paged", "contiguous"])
def test_a_run_says_what_each_source_held(tmp_path: Path, backend: str) -> None:
    found = run(tmp_path / "out", f"backend={backend}", ALL, *SHORT)
    summary = found.summary
    assert summary["requests"]["completed"] == 12
    assert sorted(summary["sources"]) == NAMES
    rows = pd.read_parquet(tmp_path / "out" / "sources")
    assert set(rows["source"]) == set(NAMES)
    assert list(rows["time_s"].unique()) == list(found.timeline["time_s"])
    for name, told in summary["sources"].items():
        assert told["allocations"] > 0
        assert rows[rows["source"] == name]["held_bytes"].max() <= told["peak_bytes"]
    assert (found.timeline[list(TERMS)].min() >= 0).all()
    assert (found.timeline[list(TERMS)].sum(axis=1) == summary["kv_budget_bytes"]).all()


def test_a_run_without_sources_has_none_and_sources_leave_tokens_alone(tmp_path: Path) -> None:
    traffic = ("workload.num_requests=12", "workload.rate_rps=4")
    without = run(tmp_path / "without", *traffic)
    assert without.summary["sources"] == {}
    assert without.summary["sources_bytes"] == 0
    assert not (tmp_path / "without" / "sources").exists()
    beside = run(tmp_path / "beside", *traffic, "sources=[lora,batch_sizes]")
    columns = ["request_id", "prompt_tokens", "generated_tokens", "status"]
    ordered = [each.requests.sort_values("request_id")[columns] for each in (without, beside)]
    pd.testing.assert_frame_equal(*(each.reset_index(drop=True) for each in ordered))
    # What they set aside is KV memory's, the headroom as large as before.
    set_aside = beside.summary["sources_bytes"]
    assert set_aside > 0
    budgets = [each.summary["kv_budget_bytes"] for each in (without, beside)]
    assert budgets[0] - budgets[1] == set_aside
    assert without.summary["headroom_bytes"] == beside.summary["headroom_bytes"]


def test_sources_are_chosen_several_at_once_or_swept() -> None:
    virtual = "device=virtual"
    cells, _ = compose_cells(["sources=[lora,graphs]", "sources.lora.slots=3", virtual], [])
    assert list(cells[0].config["sources"]) == ["lora", "graphs"]
    assert cells[0].config["sources"]["lora"]["slots"] == 3
    sweep = ["--multirun", "sources=[],beams,[lora,graphs]", virtual]
    swept, _ = compose_cells(sweep, [])
    assert [(cell.name, list(cell.config["sources"])) for cell in swept] == [
        ("sources=none", []), ("sources=beams", ["beams"]),
        ("sources=lora+graphs", ["lora", "graphs"]),
    ]  # fmt: skip


def test_an_earlier_runs_sources_are_kept_or_replaced(tmp_path: Path) -> None:
    run(tmp_path / "old", "sources=lora", "sources.lora.slots=3", "workload.num_requests=1")
    again = f"from={tmp_path / 'old'}"

    def chosen(*overrides: str) -> dict[str, Any]:
        (cell,), _ = compose_cells([again, *overrides], [])
        sources: dict[str, Any] = cell.config["sources"]
        return sources

    assert chosen() == {"lora": settings("lora", slots=3)}
    assert chosen("sources=graphs") == {"graphs": settings("graphs")}
    assert chosen("sources=[]") == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_sources_file_has_its_name_and_the_constructors_defaults(name: str) -> None:
    (made,) = make_all({name: settings(name)}, "sources").values()
    (bare,) = make_all({name: {"_target_": settings(name)["_target_"]}}, "sources").values()
    kept = {key: value for key, value in vars(made).items() if isinstance(value, int | float | str)}
    assert kept
    assert kept.items() <= vars(bare).items()


@pytest.mark.parametrize(
    ("name", "setting", "value", "said"),
    [
        ("lora", "adapters", 0, "from 1 to 100,000"),
        ("lora", "ranks", [], "list of ranks"),
        ("lora", "ranks", 8, "list of ranks"),
        ("lora", "ranks", [0], "from 1 to 1,024"),
        ("lora", "modules", "mlp", "all or attention"),
        ("speculative", "acceptance", 1.5, "from 0 to 1"),
        ("speculative", "head_dim", "64", "whole number"),
        ("beams", "width", 1, "from 2 to 256"),
        ("beams", "survivors", 3, "survivor process"),
        ("batch_sizes", "kept_steps", -1, "from 0 to 64"),
        ("graphs", "step", 0, "from 1 to 4,096"),
        ("graphs", "pool", "each", "shared or own"),
        ("growing_kv", "layout", "token", "layer or sequence"),
    ],
)
def test_a_wrong_setting_is_named_with_what_is_allowed(
    name: str, setting: str, value: object, said: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        make_all({name: settings(name, **{setting: value})}, "sources")
    message = str(caught.value)
    assert message.startswith(f"sources.{name}.{setting} is ")
    assert said in message


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["sources=nope"], "choose one of batch_sizes, beams"),
        (["sources=[nope]"], "sources=nope is unknown: `fragbench run --help`"),
        (["sources.lora.slots=3"], "sources.lora.slots is a setting of a source that is off: "
         "choose it too, as in sources=[lora]"),
        (["sources=lora", "sources.lora.slot=3"], "'sources.lora.slot' is no setting"),
        (["sources=null"], "sources=[lora] is one of several, sources=[] none"),
        (["+sources.x=3"], "choose options of conf/sources/"),
        (["sources=lora", "device=cpu"], "need PyTorch's CUDA caching allocator"),
    ],
)  # fmt: skip
def test_a_wrong_choice_is_one_sentence(
    overrides: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["run", "device=virtual", *overrides, f"out={out}"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["+sources.lora.slot=3"], "sources.lora.slot is no setting: remove it"),
        (["sources.lora.slots=9999", "sources.lora.adapters=9999"],
         "of model=llama3_8b and what sources=[lora] set aside leave -"),
        (["sources.lora.slots=9999", "sources.lora.adapters=9999"],
         "lower sources.lora.slots, sources.lora.ranks, engine.token_budget or kv_budget, or"),
    ],
)  # fmt: skip
def test_what_only_a_run_can_find_ends_it_before_a_file_is_written(
    overrides: list[str], said: str, tmp_path: Path
) -> None:
    skip_without_virtual_gpu()
    cell = composed(tmp_path / "out", "sources=lora", *overrides)
    finished = _launcher().run(cell_job(cell, None))
    assert finished.status == "user_error"
    assert said in str(finished.cause)
    assert not (tmp_path / "out").exists()
