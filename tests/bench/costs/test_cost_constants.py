"""Cost constants: every file of conf/costs loads; impossible ones and misspelt keys fail."""

from __future__ import annotations

from dataclasses import replace

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError

from bench.costs import CostConstants
from bench.errors import SettingError
from bench.packaged import load_constants, option_names


@pytest.mark.parametrize("name", option_names("costs"))
def test_every_file_loads(name: str) -> None:
    assert isinstance(load_constants(name), CostConstants)


def test_the_papers_system_differs_from_the_default_in_its_step_alone() -> None:
    paper, default = load_constants("sosp23"), load_constants()
    assert default.step_overhead_us == 0
    assert paper.step_overhead_us > 0
    assert replace(paper, step_overhead_us=0.0) == default


def test_a_misspelt_key_fails() -> None:
    with pytest.raises(ConfigKeyError, match="cuda_maloc_us"):
        OmegaConf.merge(OmegaConf.structured(CostConstants), {"cuda_maloc_us": 1.0})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cuda_malloc_us", -1.0),
        ("step_overhead_us", -1.0),
        ("interconnect_efficiency", 0.0),
        ("attention_compute_efficiency", 1.5),
    ],
)
def test_an_impossible_constant_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(SettingError, match=f"costs.{field}={value}"):
        replace(load_constants(), **{field: value})
