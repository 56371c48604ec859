"""The options of `conf/` that are plain data (GPUs, models, costs), read without Hydra."""

from __future__ import annotations

from importlib.resources import files
from typing import TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bench.costs.constants import CostConstants
from bench.errors import SettingError
from bench.gpu import Gpu
from bench.model.shape import ModelShape

Schema = TypeVar("Schema", Gpu, ModelShape, CostConstants)


def option_names(group: str) -> list[str]:
    """The options of a group: what `group=` takes."""
    found = files("conf").joinpath(group).iterdir()
    return sorted(o.name.removesuffix(".yaml") for o in found if o.name.endswith(".yaml"))


def load_gpu(name: str) -> Gpu:
    """`conf/gpu/NAME.yaml`. Raises SettingError for a name that is not there."""
    return _load("gpu", name, Gpu)


def load_model(name: str) -> ModelShape:
    """`conf/model/NAME.yaml`. Raises SettingError for a name that is not there."""
    return _load("model", name, ModelShape)


def load_constants(name: str = "default") -> CostConstants:
    """`conf/costs/NAME.yaml`. Raises SettingError for a name that is not there."""
    return _load("costs", name, CostConstants)


def _load(group: str, name: str, schema: type[Schema]) -> Schema:
    known = option_names(group)
    if name not in known:
        raise SettingError(f"{group}={name} is not known: choose one of {', '.join(known)}")
    text = files("conf").joinpath(group, f"{name}.yaml").read_text(encoding="utf-8")
    try:
        filled = OmegaConf.merge(OmegaConf.structured(schema), OmegaConf.create(text))
        settings = OmegaConf.to_object(filled)
    except OmegaConfBaseException as error:
        raise SettingError(f"conf/{group}/{name}.yaml: {str(error).splitlines()[0]}") from error
    assert isinstance(settings, schema)
    return settings
