"""Modelled time: `CostModel` turns a step's work into seconds (docs/costs.md)."""

from bench.costs.constants import CostConstants
from bench.costs.model import CostModel, StepWork

__all__ = ["CostConstants", "CostModel", "StepWork"]
