"""Settings: amounts of memory, and that a written configuration is one that can be read."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bench.config import from_container, parse_bytes
from bench.errors import SettingError
from bench.experiment import compose_cells


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("12GiB", 12 * 2**30),
        ("1.5 GiB", 3 * 2**29),
        ("512mib", 2**29),
        ("80GB", 80 * 10**9),
        ("1048576", 2**20),
        ("64 B", 64),
    ],
)
def test_an_amount_of_memory_has_binary_and_decimal_units(text: str, nbytes: int) -> None:
    assert parse_bytes("kv_budget", text) == nbytes


@pytest.mark.parametrize("text", ["12XB", "GiB", "", "-1GiB", "0GiB", "1e3", "1 2GiB", "1,5GiB"])
def test_what_is_no_amount_is_refused_by_name(text: str) -> None:
    with pytest.raises(SettingError, match="kv_budget="):
        parse_bytes("kv_budget", text)


def test_a_configuration_survives_being_written_and_read(tmp_path: Path) -> None:
    overrides = ["workload=rag", "kv_budget=12GiB", "stop_after_s=5", f"out={tmp_path / 'new'}"]
    (cell,), _ = compose_cells([*overrides, "device=cpu"], ["fragbench"])
    again = yaml.safe_load(yaml.safe_dump(cell.config))
    assert from_container(again) == from_container(cell.config)
    assert from_container(again).kv_budget == "12GiB"


def test_an_earlier_run_gives_all_settings_that_are_not_given(tmp_path: Path) -> None:
    overrides = ["backend=bucketed", "workload=rag", "seed=4", "jobs=1", "out=old", "device=cpu"]
    (first,), _ = compose_cells(overrides, ["fragbench"])
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(first.config), encoding="utf-8")
    (again,), _ = compose_cells([f"from={tmp_path}"], ["fragbench"])
    assert again.config == first.config | {"out": None, "jobs": None}
    (other,), _ = compose_cells([f"from={path}", "backend=paged", "seed=5"], ["fragbench"])
    assert (other.name, other.config["seed"]) == ("paged", 5)
    assert other.config["workload"] == first.config["workload"]


def test_a_name_is_the_backends_unless_it_is_given() -> None:
    (cell,), _ = compose_cells(["backend=bucketed", "device=cpu"], ["fragbench"])
    assert cell.name == "bucketed"
    (cell,), _ = compose_cells(["name=mine", "device=cpu"], ["fragbench"])
    assert cell.name == "mine"


def test_cells_are_named_by_what_varies() -> None:
    sweep = ["--multirun", "backend=paged,bucketed", "seed=1,2", "gpu=h100_80gb", "device=cpu"]
    cells, folder = compose_cells([*sweep, "out=sweep", "jobs=2"], ["fragbench"])
    assert [cell.name for cell in cells] == [
        "backend=paged,seed=1",
        "backend=paged,seed=2",
        "backend=bucketed,seed=1",
        "backend=bucketed,seed=2",
    ]
    assert {cell.out.parent for cell in cells} == {folder} == {Path("sweep")}


def cpu_defaults(*overrides: str) -> tuple[str, str | None, int | None]:
    """Model, KV budget and number of requests of a run on the CPU."""
    (cell,), _ = compose_cells([*overrides, "device=cpu"], ["fragbench"])
    config = cell.config
    return config["model"]["name"], config["kv_budget"], config["workload"].get("num_requests")


def test_the_cpu_computes_a_small_model_in_little_memory_on_short_traffic() -> None:
    assert cpu_defaults() == cpu_defaults("model=tiny", "workload=mixed") == ("tiny", "64MiB", 9)
    assert cpu_defaults("workload=chat") == ("tiny", "64MiB", 9)


def test_what_is_given_for_the_cpu_is_taken(tmp_path: Path) -> None:
    assert cpu_defaults("model=llama2_7b") == ("llama2_7b", None, 9)
    assert cpu_defaults("kv_budget=1GiB", "workload.num_requests=3") == ("tiny", "1GiB", 3)
    assert cpu_defaults("utilization=0.5", "workload.duration_s=5") == ("tiny", None, None)
    assert cpu_defaults("workload=trace", f"workload.path={tmp_path}") == ("tiny", "64MiB", None)
