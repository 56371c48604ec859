"""What engine=transformers makes of an experiment, and what it refuses."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from bench.config import check_run, from_container
from bench.errors import SettingError
from bench.experiment import compose_cells
from bench.hugging_face.chosen import own_name


def names(*arguments: str) -> list[str]:
    cells, _ = compose_cells(["device=virtual", *arguments], ["fragbench", "matrix"])
    return [cell.name for cell in cells]


def test_beside_several_backends_the_library_is_there_once() -> None:
    swept = ("--multirun", "backend=paged,contiguous", "engine=inrepo,transformers")
    assert sorted(names(*swept)) == [
        "backend=contiguous,engine=inrepo",
        "backend=paged,engine=inrepo",
        "backend=transformers_dynamic,engine=transformers",
    ]


def test_both_caches_are_two_cells() -> None:
    caches = ("--multirun", "engine=transformers", "engine.cache=dynamic,static")
    assert names(*caches) == ["engine.cache=dynamic", "engine.cache=static"]


@pytest.mark.parametrize(
    ("said", "own"),
    [
        (None, None),
        ("backend=paged,seed=1", "backend=own,seed=1"),
        ("backend.reserve=grow,engine=transformers", "engine=transformers"),
        ("backend.block_size=8", "backend=own"),
        ("sources=lora+graphs,backend=paged", "sources=lora+graphs,backend=own"),
    ],
)
def test_a_cell_is_called_by_the_memory_that_it_has(said: str | None, own: str | None) -> None:
    assert own_name(said, "own") == own


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    """The configuration of one experiment."""
    (cell,), _ = compose_cells(["device=virtual", "engine=transformers"], ["fragbench", "run"])
    return cell.config


@pytest.mark.parametrize(
    ("settings", "device", "why"),
    [
        ({"engine": {"cache": "quantized"}}, "virtual", "engine.cache=quantized"),
        ({"engine": {"prefill": "chunked"}}, "virtual", "whole prompts"),
        ({"engine": {"one_at_a_time": False}}, "virtual", "a forward pass a sequence"),
        ({"engine": {"batching": "static"}}, "virtual", "makes batches"),
        ({"kv_dtype": "fp8"}, "virtual", "kv_dtype=fp8"),
        ({}, "cpu", "device=cpu computes in batches"),
    ],
)
def test_what_the_library_cannot_be_is_refused(
    plain: dict[str, Any], settings: dict[str, Any], device: str, why: str
) -> None:
    check_run(from_container(plain), "virtual")
    changed = plain | settings | {"engine": plain["engine"] | settings.get("engine", {})}
    with pytest.raises(SettingError, match=why):
        check_run(from_container(changed), device)


def test_without_the_library_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)  # as good as not installed
    with pytest.raises(SettingError, match=r"pip install 'fragbench\[transformers\]'"):
        names("engine=transformers", f"out={tmp_path / 'run'}")
    assert names("engine=inrepo"), "nobody else needs it"
    assert not (tmp_path / "run").exists()
