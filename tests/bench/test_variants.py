"""`repeats` and `sensitivity`: which runs they add, and that a factor reaches the cost model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.costs.factors import CONSTANTS
from bench.errors import SettingError
from bench.experiment import compose_cells
from bench.variants import variants
from bench.vllm.chosen import with_block_pool


def cells_of(tmp_path: Path, *overrides: str) -> list[Any]:
    cells, _ = compose_cells(
        [*overrides, "device=virtual", f"out={tmp_path / 'out'}"], ["fragbench", "run"], again=True
    )
    return cells


def varied(tmp_path: Path, backend: str) -> list[dict[str, Any]]:
    """Settings that `sensitivity=true` makes of one run."""
    (cell,) = cells_of(tmp_path, f"backend={backend}")
    return [config for _, config in variants(cell.config | {"sensitivity": True})]


def test_repeats_have_seeds_that_follow_and_folders_of_their_own(tmp_path: Path) -> None:
    cells = cells_of(tmp_path, "repeats=3", "seed=5")
    assert [cell.config["seed"] for cell in cells] == [5, 6, 7]
    assert [cell.out.name for cell in cells] == ["seed=5", "seed=6", "seed=7"]
    assert {(cell.config["repeats"], cell.name.split(",")[0]) for cell in cells} == {(1, "paged")}


def test_sensitivity_changes_each_constant_that_can_matter_both_ways(tmp_path: Path) -> None:
    changed = [config["cost_factors"] for config in varied(tmp_path, "contiguous")]
    assert changed[0] == {}
    names = {name for factors in changed for name in factors}
    assert names < set(CONSTANTS)
    assert {"compute_efficiency", "cuda_malloc_us", "synchronization_us"} < names
    assert not any(name.startswith(("paged_", "cu_mem_", "all_reduce")) for name in names)
    assert "step_overhead_us" not in names  # 0 stays 0
    assert len(changed) == 1 + 2 * len(names)
    mapped = varied(tmp_path, "contiguous_expandable")
    assert any("cu_mem_map_us" in config["cost_factors"] for config in mapped)


def test_vllms_pool_is_mapped_no_more_than_any_other(tmp_path: Path) -> None:
    (cell,) = cells_of(tmp_path, "backend=paged")
    config = with_block_pool(cell.config | {"engine": cell.config["engine"] | {"name": "vllm"}})
    changed = [each["cost_factors"] for _, each in variants(config | {"sensitivity": True})]
    names = {name for factors in changed for name in factors}
    assert "paged_attention_fixed" in names
    assert not any(name.startswith("cu_mem_") for name in names)


def test_every_variant_has_a_name_and_a_folder_of_its_own(tmp_path: Path) -> None:
    paged = cells_of(tmp_path, "sensitivity=true", "backend=paged", "repeats=2")
    assert any("paged_attention_fixed" in cell.config["cost_factors"] for cell in paged)
    assert len({cell.name for cell in paged}) == len(paged)
    folders = {cell.out for cell in paged}
    assert not any(above in folders for cell in paged for above in cell.out.parents)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["repeats=0"], "repeats=0 is out of range"),
        (["+cost_factors.magic=2"], "cost_factors.magic is no constant of the cost model"),
        (["+cost_factors.cuda_malloc_us=0"], "cost_factors.cuda_malloc_us=0.0 is out of range"),
        (["device=cpu", "sensitivity=true"], "device=cpu measures"),
    ],
)
def test_a_wrong_choice_is_one_sentence(tmp_path: Path, overrides: list[str], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        compose_cells([*overrides, f"out={tmp_path / 'out'}"], ["fragbench", "run"], again=True)


def test_other_commands_refuse_what_they_do_not_follow(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="repeats=2 is for `fragbench run`"):
        compose_cells(["repeats=2", f"out={tmp_path / 'out'}"], ["fragbench", "soak"])
