"""The packaged cost settings, read without Hydra, for the fit and for tests."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from omegaconf import OmegaConf

from bench.costs.constants import CostConstants
from bench.gpu import Gpu
from bench.model.shape import ModelShape

CONF = Path(__file__).resolve().parents[2] / "conf"
Schema = TypeVar("Schema", Gpu, ModelShape, CostConstants)


def load_gpu(name: str) -> Gpu:
    """`conf/gpu/<name>.yaml`, checked."""
    return _load(Gpu, CONF / "gpu" / f"{name}.yaml")


def load_model(name: str) -> ModelShape:
    """`conf/model/<name>.yaml`, checked."""
    return _load(ModelShape, CONF / "model" / f"{name}.yaml")


def load_constants(name: str = "default") -> CostConstants:
    """`conf/costs/<name>.yaml`, checked."""
    return _load(CostConstants, CONF / "costs" / f"{name}.yaml")


def _load(schema: type[Schema], path: Path) -> Schema:
    settings = OmegaConf.to_object(
        OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.load(path))
    )
    assert isinstance(settings, schema)
    return settings
