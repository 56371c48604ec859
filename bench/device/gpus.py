"""The GPUs of `conf/gpu/`, by name."""

from __future__ import annotations

from importlib.resources import files
from typing import cast

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from bench.errors import SettingError
from bench.gpu import Gpu


def gpu_names() -> list[str]:
    """The names that `gpu=` takes."""
    options = files("conf").joinpath("gpu").iterdir()
    return sorted(o.name.removesuffix(".yaml") for o in options if o.name.endswith(".yaml"))


def load_gpu(name: str) -> Gpu:
    """The GPU of `conf/gpu/NAME.yaml`.

    Raises SettingError for a name that is not there or a file that does not fit its schema.
    """
    if name not in gpu_names():
        raise SettingError(f"gpu={name} is not known: choose one of {', '.join(gpu_names())}")
    text = files("conf").joinpath("gpu", f"{name}.yaml").read_text(encoding="utf-8")
    try:
        filled = OmegaConf.merge(OmegaConf.structured(Gpu), OmegaConf.create(text))
        return cast(Gpu, OmegaConf.to_object(filled))
    except OmegaConfBaseException as error:
        raise SettingError(f"conf/gpu/{name}.yaml: {str(error).splitlines()[0]}") from error
