"""Constants of the cost model, multiplied: how much does a result hang on one of them?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from bench.costs.constants import CostConstants
from bench.errors import SettingError
from bench.gpu import Gpu

OF_A_GPU = ("compute_efficiency", "bandwidth_efficiency", "operator_overhead_us")
"""The three that are fitted to each GPU."""

CONSTANTS = (*OF_A_GPU, *(field.name for field in fields(CostConstants)))


def check_factors(factors: Mapping[str, float]) -> None:
    """Raises SettingError for a constant that is not there, or a factor that is not above 0."""
    for name, factor in factors.items():
        if name not in CONSTANTS:
            raise SettingError(
                f"cost_factors.{name} is no constant of the cost model: take one of "
                f"{', '.join(CONSTANTS)}."
            )
        if not 0 < factor < math.inf:
            raise SettingError(
                f"cost_factors.{name}={factor} is out of range: give a number above 0, such as "
                "0.7 for 30 % less."
            )


def scaled(
    gpu: Gpu, constants: CostConstants, factors: Mapping[str, float]
) -> tuple[Gpu, CostConstants]:
    """Both with the named constants multiplied; efficiencies reach 1 at most."""
    for name, factor in factors.items():
        if name in OF_A_GPU:
            gpu = _multiplied(gpu, name, factor)
        else:
            constants = _multiplied(constants, name, factor)
    return gpu, constants


def _multiplied(holder: Any, name: str, factor: float) -> Any:
    value = getattr(holder, name) * factor
    return replace(holder, **{name: min(value, 1.0) if name.endswith("_efficiency") else value})
