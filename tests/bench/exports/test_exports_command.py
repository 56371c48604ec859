"""`fragbench export`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.cli import main
from bench.exports.command import FORMATS
from bench.report.results import load_runs

WriteRun = Callable[..., Path]


def test_each_format_is_written_and_a_later_report_sees_the_same_runs(
    write_run: WriteRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run("a", "paged")
    write_run("b", "contiguous")
    formats = [name for name in FORMATS if name not in ("figures", "mlflow")]
    assert main(["export", str(tmp_path), f"to={','.join(formats)}"]) == 0
    out = tmp_path / "exports"
    for name in ("overview.md", "overview.tex", "comparison.csv", "runs.parquet", "vllm"):
        assert (out / name).exists()
    shown = capsys.readouterr().out
    assert [line.partition(":")[0] for line in shown.splitlines()] == [*formats, "Exports"]
    assert not list(out.rglob("*.tmp"))
    assert len(load_runs(tmp_path)) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["to=pdf"], "to=pdf: pdf is none of markdown, latex"),
        (["to="], "to=: nothing is none of"),
        (["another"], "export: give one folder"),
        (["--fast"], "export: give one folder"),
        (["ttft_slo_s=0"], "ttft_slo_s=0 is out of range"),
        (["to=csv", "out=run/config.yaml"], "out=run/config.yaml cannot be made"),
    ],
)
def test_wrong_settings_are_one_sentence(
    arguments: list[str],
    said: str,
    write_run: WriteRun,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run("run")
    assert main(["export", "run", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"fragbench: {said}")
    assert not (tmp_path / "run" / "exports").exists()
