"""Parallel sampling and beam search (section 6.3): overrides for them, with either process that
says which beams survive."""

from __future__ import annotations

from typing import NamedTuple

from bench.paper.setups import Dataset

SURVIVORS = {
    "scores": "workloads.survivors.scores.ScoreSurvivors",
    "uniform": "workloads.survivors.uniform.UniformSurvivors",
}


class Decoding(NamedTuple):
    """How answers come out of a prompt; `survivors` names the process of a beam search."""

    width: int
    survivors: str | None = None

    @property
    def key(self) -> str:
        return f"{self.survivors or 'sampling'}{self.width}"

    @property
    def label(self) -> str:
        if self.survivors is None:
            return "parallel sampling"
        return f"beam search ({self.survivors})"

    def overrides(self, dataset: Dataset) -> tuple[str, ...]:
        """For the requests of a dataset."""
        chosen = [f"++{dataset.kind}.branches={self.width}"]
        if self.survivors:
            target = SURVIVORS[self.survivors]
            chosen.append(f"++{dataset.kind}.survivors={{_target_:{target}}}")
        return tuple(chosen)
