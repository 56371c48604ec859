"""`fragbench kernels`: refusals are one sentence and write nothing; a crash leaves its rows."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench.cli import main
from bench.device.launcher import Launcher
from bench.device.probe import Machine
from bench.kernels import command
from bench.kernels.registry import PROVIDERS
from bench.kernels.rows import Device, Row
from bench.kernels.settings import DEFAULTS, read_settings
from bench.kernels.virtual import on_virtual_gpu
from tests.virtual_gpu import run_on_virtual_gpu, skip_without_virtual_gpu

START = "import sys; from bench.cli import main; sys.exit(main(sys.argv[1:]))"
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["kernels", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("fragbench: ")
    assert said.err.count("\n") == 1
    assert list(Path.cwd().iterdir()) == []
    return said.err


def on_machine(monkeypatch: pytest.MonkeyPatch, *gpu_names: str, cuda: str | None = "13.0") -> None:
    monkeypatch.setattr(command, "probe", lambda: Machine(gpu_names, cuda, None))


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["device=cuda"], ["'device=cuda' is no setting", *DEFAULTS]),
        (["--cfg"], ["'--cfg' is no setting"]),
        (["batches"], ["batches has no value", "batches=1,8,64"]),
        (["out="], ["out has no value", "out=results/mine"]),
        (["batches=0"], ["batches=0", "sequences", "1 to 4096"]),
        (["batches=1,,2"], ["batches=1,,2", "commas"]),
        (["batches=[]"], ["batches=[]", "1 to 4096"]),
        (["contexts=1e3"], ["contexts=1e3", "tokens", "1 to 1048576"]),
        (["contexts=2097152"], ["contexts=2097152", "1 to 1048576"]),
        (["block_sizes=16,24"], ["block_sizes=16,24", "24 tokens", "8, 16, 32, 64, 128, 256"]),
        (["block_sizes=512"], ["block_sizes=512", "1 to 256"]),
        (["dtype=fp64"], ["dtype=fp64", "bf16, fp16, fp8"]),
        (["model=gpt"], ["model=gpt", "llama3_8b"]),
        (["repeats=4"], ["repeats=4", "from 5 to 10000"]),
        (["repeats=many"], ["repeats=many", "whole number"]),
    ],
)
def test_a_wrong_setting_is_one_sentence(
    arguments: list[str],
    parts: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_machine(monkeypatch, "NVIDIA H200")  # whether or not this one has a GPU
    sentence = refusal(capsys, *arguments)
    for part in parts:
        assert part in sentence


def test_without_a_gpu_nothing_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_machine(monkeypatch)
    assert "an NVIDIA GPU and this machine has none" in refusal(capsys, "out=here")


def test_with_a_cpu_build_of_pytorch_nothing_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_machine(monkeypatch, "NVIDIA H200", cuda=None)
    assert "CUDA build of PyTorch" in refusal(capsys)


def test_a_folder_with_something_in_it_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_machine(monkeypatch, "NVIDIA H200")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    assert main(["kernels", "out=full"]) == 2
    assert "out=full is not an empty folder" in capsys.readouterr().err


def test_the_virtual_gpu_is_refused_before_anything_starts(tmp_path: Path) -> None:
    skip_without_virtual_gpu()
    program = [sys.executable, "-c", START]
    done = subprocess.run(
        [*program, "exec", "--", *program, "kernels"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "fragbench: kernels do nothing on the virtual GPU" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("job", ["measure_device", "measure_provider"])
def test_a_job_that_finds_itself_on_the_virtual_gpu_refuses(job: str) -> None:
    skip_without_virtual_gpu()
    payload = {"repeats": 5, "shapes": [], "block_sizes": []}
    with pytest.raises(pytest.fail.Exception, match="kernels do nothing on the virtual GPU"):
        run_on_virtual_gpu(f"bench.kernels.measure:{job}", payload)
    assert not on_virtual_gpu()


def test_lists_are_read_with_and_without_brackets_and_sorted() -> None:
    settings = read_settings(["batches=[64,1,8]", "contexts=100,100", "model=llama3_70b"])
    assert settings.batches == (1, 8, 64)
    assert settings.contexts == (100,)
    assert settings.out is None
    # 64 query and 8 KV heads on 4 GPUs
    assert {(shape.heads, shape.kv_heads) for shape in settings.shapes()} == {(16, 2)}
    assert [shape.batch for shape in settings.shapes()] == [1, 8, 64]


def test_the_parent_never_imports_torch() -> None:
    code = "import sys, bench.kernels.command; print({'torch', 'triton'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "set()\n"


def test_a_process_that_dies_leaves_its_rows_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read_settings(["batches=1", "contexts=512", "block_sizes=8,16,32"])
    monkeypatch.setattr(
        command, "PROVIDER_JOB", "tests.bench.kernels.kernel_jobs:report_one_and_die"
    )
    status = Console(file=io.StringIO()).status("")
    with Launcher("cpu", modules=("torch",)) as launcher:
        rows = command._provider_rows(launcher, PROVIDERS[0], settings, status)
    assert [(row.block_size, row.status) for row in rows] == [
        (8, "timed"),
        (16, "failed"),
        (32, "failed"),
    ]
    assert "SIGABRT" in rows[1].note


@pytest.mark.parametrize(("status", "exit_code"), [("timed", 0), ("left out", 0), ("failed", 1)])
def test_a_table_a_csv_and_a_figure_come_out(
    status: Any,
    exit_code: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_machine(monkeypatch, "NVIDIA H200")

    def measure(settings: Any, console: Console) -> Any:
        shapes = settings.shapes()
        rows = [Row("paged_decode", each, 16, "timed", 100.0, 99.0, 101.0) for each in shapes]
        rows.append(Row("SDPA", shapes[0], None, status, note="why"))
        return command._Found(Device("NVIDIA H200", 4000.0, 2.5), rows)

    monkeypatch.setattr(command, "_measure", measure)
    assert main(["kernels", "out=here", "batches=2", "dtype=fp16"]) == exit_code
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == [
        "kernels.csv",
        "kernels.png",
    ]
    with (tmp_path / "here" / "kernels.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 + 1
    assert {row["dtype"] for row in rows} == {"fp16"}
    said = capsys.readouterr().out
    assert "32 query and 8 KV heads of 128" in said
    assert "a copy moves 4,000 GB/s" in said


def test_help_names_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "--help"]) == 0
    said = capsys.readouterr().out
    page = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    for name in DEFAULTS:
        assert f"  {name}=" in said
        assert f"`{name}`" in page
