"""What engine=vllm makes of an experiment, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bench.config import check_run, from_container
from bench.errors import SettingError
from bench.experiment import compose_cells
from bench.vllm import python
from bench.vllm.chosen import with_block_pool
from bench.vllm.python import TESTED
from tests.bench.vllm.environments import pretend


@pytest.fixture(autouse=True, scope="module")
def _vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    python._asked.cache_clear()
    with pytest.MonkeyPatch.context() as monkeypatch:
        pretend(TESTED[0], tmp_path_factory.mktemp("site"), monkeypatch)
        yield


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    """The configuration of one experiment."""
    (config,) = cells("engine=vllm", "backend=paged").values()
    return config


def cells(*arguments: str) -> dict[str, dict[str, Any]]:
    composed, _ = compose_cells(["device=virtual", *arguments], ["fragbench", "matrix"])
    return {cell.name: cell.config for cell in composed}


def test_its_pool_stands_for_a_paged_backend_with_and_without_prefix_caching() -> None:
    swept = ("--multirun", "backend=paged,paged_prefix", "engine=inrepo,vllm")
    found = cells(*swept, "backend.block_size=32")
    assert sorted(found) == [
        "backend=paged,engine=inrepo",
        "backend=paged_prefix,engine=inrepo",
        "backend=vllm,engine=vllm",
        "backend=vllm_prefix,engine=vllm",
    ]
    pool = found["backend=vllm_prefix,engine=vllm"]["backend"]
    assert pool["_target_"] == "bench.vllm.pool.VllmPrefixPool"
    assert pool["block_size"] == 32


def test_settings_of_the_pool_stay_in_a_cells_name() -> None:
    found = cells("--multirun", "engine=vllm", "backend.block_size=16,32")
    assert list(found) == ["backend.block_size=16", "backend.block_size=32"]


def test_an_earlier_run_keeps_its_pool_and_another_engine_gets_its_own(
    plain: dict[str, Any],
) -> None:
    assert with_block_pool(plain) == plain
    ours = with_block_pool(plain | {"engine": plain["engine"] | {"name": "inrepo"}})
    assert (ours["backend"]["_target_"], ours["backend"]["name"]) == (
        "backends.paged.Paged",
        "paged",
    )


def test_a_layout_that_vllm_has_nothing_like_is_refused() -> None:
    with pytest.raises(SettingError, match=r"backend=contiguous: vLLM .* choose backend=paged"):
        cells("engine=vllm", "backend=contiguous")


@pytest.mark.parametrize(
    ("settings", "device", "why"),
    [
        ({"vllm": {"mode": "fast"}}, "virtual", "vllm.mode=fast"),
        ({}, "cpu", "device=cpu: engine=vllm"),
        ({"engine": {"batching": "static"}}, "virtual", "engine.batching=static .* at continuous"),
        ({"engine": {"max_live_tokens": 9}}, "virtual", "max_live_tokens=9 .* at null"),
        ({"driver": {"name": "locust", "clock": "wall"}}, "virtual", "vllm serve"),
        ({"tensor_parallel": 2}, "virtual", "tensor_parallel=2: .* one GPU"),
        ({"weight_dtype": "int4"}, "virtual", "weight_dtype=int4"),
        ({"kv_dtype": "bf16"}, "virtual", "kv_dtype=bf16: .* fp16, or in fp8"),
        ({"vllm": {"arguments": {"max_num_seqs": 8}}}, "virtual", "said by engine.max_num_seqs="),
        ({"vllm": {"arguments": {"load_format": "auto"}}}, "virtual", "leave it out"),
        ({"vllm": {"arguments": {"scheduling_policy": "priority"}}}, "virtual", "leave it out"),
        (
            {"vllm": {"mode": "graphs", "arguments": {"compilation_config": {"mode": 3}}}},
            "virtual",
            "stand for what vllm.mode=graphs says",
        ),
    ],
)
def test_what_vllm_would_not_follow_is_refused(
    plain: dict[str, Any], settings: dict[str, Any], device: str, why: str
) -> None:
    check_run(from_container(plain), "virtual")
    changed = {
        name: plain[name] | value if isinstance(value, dict) else value
        for name, value in settings.items()
    }
    with pytest.raises(SettingError, match=why):
        check_run(from_container(plain | changed), device)


def test_an_engine_that_is_not_there_is_refused(plain: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=r"engine.name=sglang .* inrepo, transformers, vllm"):
        from_container(plain | {"engine": plain["engine"] | {"name": "sglang"}})
