"""CSV and Parquet of the comparison and of every run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from bench.exports.command import main

WriteRun = Callable[..., Path]


@pytest.fixture
def repeated(write_run: WriteRun, tmp_path: Path) -> Path:
    """Five seeds of `paged`, at 1 to 5 requests/s, and one run of `vmm`."""
    for seed in range(5):
        folder = write_run(
            f"paged/seed={seed}", "paged", requests_per_s=seed + 1.0, seed=seed,
            name=f"backend=paged,seed={seed}", settings=f"cost_factors: {{}}\nrepeat: {seed}\n",
        )  # fmt: skip
        text = (folder / "config.yaml").read_text().replace("seed: 0\n", f"seed: {seed}\n")
        (folder / "config.yaml").write_text(text.replace(f"repeat: {seed}\n", ""))
    write_run("vmm", "vmm")
    return tmp_path


def test_intervals_stand_beside_their_means(repeated: Path) -> None:
    assert main([str(repeated), "to=csv", f"out={repeated / 'x'}"]) == 0
    frame = pd.read_csv(repeated / "x" / "comparison.csv").set_index("backend")
    assert frame["repeats"].to_dict() == {"paged": 5, "vmm": 1}
    columns = list(frame)
    at = columns.index("requests_per_s")
    assert columns[at + 1 : at + 3] == ["requests_per_s_low", "requests_per_s_high"]
    mean, low, high = frame.loc["paged", columns[at : at + 3]]
    assert mean == 3.0  # of 1 to 5
    assert 1.0 < low < 2.0 < 4.0 < high < 5.0
    assert frame.loc["vmm", columns[at + 1 : at + 3]].isna().all()


def test_every_run_is_a_row_with_its_seed(repeated: Path) -> None:
    assert main([str(repeated), "to=csv,parquet", f"out={repeated / 'x'}"]) == 0
    runs = pd.read_csv(repeated / "x" / "runs.csv")
    assert sorted(runs["seed"][runs["backend"] == "paged"]) == [0, 1, 2, 3, 4]
    assert len(runs) == 6
    typed = pd.read_parquet(repeated / "x" / "runs.parquet")
    assert list(typed) == list(runs)
    assert typed["seed"].to_list() == runs["seed"].to_list()
    assert typed["requests_per_s"].to_list() == runs["requests_per_s"].to_list()
    assert typed["cost_factors"].isna().all()
