"""A wheel works from an empty folder: configuration, C sources and the report's page are inside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.virtual_gpu import skip_without_virtual_gpu

ROOT = Path(__file__).parents[1]
SOURCES = ("bench", "backends", "workloads", "conf")
FILES = ("pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, as building leaves files behind."""
    copy = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, copy / name)
    (copy / "tests").mkdir()
    (copy / "tests" / "test_nothing.py").touch()
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)], copy)
    (built,) = out.glob("*.whl")
    return built


def run(command: list[str], where: Path, **variables: str) -> str:
    done = subprocess.run(
        command, cwd=where, env=os.environ | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_has_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        path.relative_to(ROOT).as_posix()
        for name in SOURCES
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in inside if ".dist-info/" not in name} == expected


def test_an_installed_wheel_runs_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    skip_without_virtual_gpu()
    installed, empty = tmp_path / "installed", tmp_path / "empty"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    run([*pip, "--target", str(installed), str(wheel)], tmp_path)
    empty.mkdir()

    def fragbench(*arguments: str) -> str:
        command = [sys.executable, "-m", "bench", *arguments]
        return run(command, empty, PYTHONPATH=str(installed))

    assert "block_size: 16" in fragbench("run", "--cfg", "job")
    assert not list(empty.iterdir())
    settings = ["workload=chat", "workload.num_requests=20", "out=first", "device=virtual"]
    fragbench("run", *settings)
    fragbench("report", "first")
    summary = json.loads((empty / "first" / "summary.json").read_text(encoding="utf-8"))
    assert summary["status"] == "completed"
    assert summary["requests"]["sent"] == 20
    assert (empty / "first" / "report.html").stat().st_size > 0
    where = [sys.executable, "-c", "import bench; print(bench.__file__)"]
    assert run(where, empty, PYTHONPATH=str(installed)).startswith(str(installed))
