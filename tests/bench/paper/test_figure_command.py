"""`fragbench figure`: wrong input is one sentence and writes nothing; a short figure is whole."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from bench.cli import main
from bench.paper.command import SHORTENED
from bench.paper.registry import FIGURES
from tests.virtual_gpu import skip_without_virtual_gpu

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["choose one of", *FIGURES]),
        (["fig9"], ["fig9", *FIGURES]),
        (["quick=true", "fig2"], ["first", "fig2"]),
        (["fig2", "--cfg"], ["--cfg", "--help"]),
        (["fig2", "quick=maybe"], ["quick=maybe", "true or false"]),
        (["fig2", "quick"], ["quick has no value", "quick=true"]),
        (["fig2", "out"], ["out has no value", "out="]),
        (["fig2", "~workload"], ["~workload", "fig2", "leave it out"]),
        (["fig13", "stop_after_s=60"], ["stop_after_s=60", "leave it out", "quick=true"]),
        (["hit_rate", "device=cuda"], ["device=cuda", "leave it out", "jobs, out, path"]),
        (["hit_rate", "seed=1"], ["seed=1", "leave it out"]),
        (["fig2", "path=nowhere.json"], ["path=nowhere.json", "ShareGPT lengths"]),
        (["overlap", "path=nowhere.json"], ["path=nowhere.json", "overlap"]),
        (["fig2", "backend=paged"], ["backend=paged", "fig2", "leave it out"]),
        (["fig12", "++workload.rate_rps=3"], ["workload.rate_rps=3"]),
        (["fig2", "seed=-1"], ["seed=-1"]),
        (["fig2", "sed=1"], ["'sed'"]),
        (["fig2", "costs=sosp24"], ["costs=sosp24", "sosp23"]),
    ],
)
def test_a_wrong_figure_is_one_sentence(
    arguments: list[str], parts: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", *arguments]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("fragbench: ")
    assert said.err.count("\n") == 1
    for part in parts:
        assert part in said.err
    assert list(folder.iterdir()) == []


def test_a_folder_with_something_in_it_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "full").mkdir()
    (folder / "full" / "mine.txt").touch()
    assert main(["figure", "fig2", "out=full", "quick=true"]) == 2
    assert "out=full" in capsys.readouterr().err
    assert [path.name for path in (folder / "full").iterdir()] == ["mine.txt"]


def test_help_lists_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure", "--help"]) == 0
    said = capsys.readouterr().out
    for name, figure in FIGURES.items():
        assert re.search(rf"^  {name} +{re.escape(figure.title)}", said, re.M)


def test_every_figure_is_documented_and_has_a_reference() -> None:
    page = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
    for name in FIGURES:
        assert f"`{name}`" in page
        for kind in ("csv", "png"):
            assert (ROOT / "results" / "reference" / f"{name}.{kind}").is_file()


def test_a_users_lengths_and_settings_are_what_a_figure_uses(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """100 prompts of 99 tokens with 101 of output: 200 tokens and no spread, so that the oracle's
    buffers of 256 hold 200 that are filled in the end."""
    skip_without_virtual_gpu()
    lines = ["prompt_tokens,output_tokens", *["99,101"] * 100]
    (folder / "own lengths.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    arguments = ["path=own lengths.csv", "quick=true", "out=here", "workload.duration_s=40",
                 "engine.max_num_seqs=1024"]  # fmt: skip
    assert main(["figure", "fig2", *arguments]) == 0
    rows = read(folder / "here" / "fig2.csv")
    assert {row["lengths"] for row in rows} == {"pairs of own lengths.csv"}
    assert all(row["note"].endswith(SHORTENED) for row in rows)
    assert (folder / "here" / "fig2.png").read_bytes().startswith(b"\x89PNG")
    by_use = {row["quantity"]: float(row["ours"]) for row in rows if "Max" in row["system"]}
    # 7 buffers of 2,048 in 15,728 slots; each is filled up to 199 in the end, the rest never.
    assert by_use["internal"] == pytest.approx(100 * 7 * (2048 - 199) / 15_728.64, rel=0.001)
    assert sum(by_use.values()) == pytest.approx(100, abs=0.01)
    assert "fig2" in capsys.readouterr().out


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
