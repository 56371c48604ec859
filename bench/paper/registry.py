"""The figures that `fragbench figure` knows, by name."""

from __future__ import annotations

from bench.paper.fig2 import Figure2
from bench.paper.fig12 import Figure12
from bench.paper.fig13 import Figure13
from bench.paper.figure import PaperFigure

_ALL: tuple[PaperFigure, ...] = (Figure2(), Figure12(), Figure13())
FIGURES = {figure.name: figure for figure in _ALL}
