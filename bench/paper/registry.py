"""The figures that `fragbench figure` knows, by name."""

from __future__ import annotations

from bench.paper.checkpoints import Checkpoints
from bench.paper.empty_cache import EmptyCache
from bench.paper.fig2 import Figure2
from bench.paper.fig12 import Figure12
from bench.paper.fig13 import Figure13
from bench.paper.fig14 import Figure14
from bench.paper.fig15 import Figure15
from bench.paper.fig16 import Figure16
from bench.paper.fig18b import Figure18b
from bench.paper.figure import PaperFigure
from bench.paper.hf_caches import HfCaches
from bench.paper.hit_blocks import HitBlocks
from bench.paper.hit_rate import HitRate
from bench.paper.overlap import Overlap
from bench.paper.restart import Restart
from bench.paper.soak import Soak
from bench.paper.sources import Sources
from bench.paper.utilization import Utilization
from bench.paper.vllm_beside import VllmBeside
from bench.paper.vllm_settings import VllmSettings
from bench.paper.vllm_utilization import VllmUtilization

_ALL: tuple[PaperFigure, ...] = (
    Figure2(), Figure12(), Figure13(), Figure14(), Figure15(), Figure16(), Figure18b(),
    HitRate(), HitBlocks(), Overlap(), HfCaches(), Sources(), EmptyCache(), Utilization(),
    Restart(), Checkpoints(), Soak(), VllmUtilization(),
    VllmSettings(), VllmBeside(),
)  # fmt: skip
FIGURES = {figure.name: figure for figure in _ALL}
