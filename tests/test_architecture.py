"""Who may import whom, and that ARCHITECTURE.md names only what is there."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("bench", "backends", "workloads")
PLUGIN_PATH = ROOT / "bench" / "plugin_path"
ENTRY_POINTS = {"bench.experiment", "bench.plugins", "bench.config", "bench.hydra_errors"}
PARENT = ("bench.cli", "bench.experiment", "bench.cells", "bench.progress", "bench.help_text",
          "bench.kernels.command")  # fmt: skip

SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in SOURCES if PLUGIN_PATH not in path.parents}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path, *, nested: bool = True) -> Iterator[str]:
    """Full names of what a file imports; `nested` ones run later, or are for type checkers."""
    nodes = ast.walk(tree(path)) if nested else iter(tree(path).body)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else str(node.module)


def imports_of(package: str) -> set[tuple[str, str]]:
    return {
        (name, other)
        for name, path in MODULES.items()
        if name == package or name.startswith(f"{package}.")
        for other in imported(path)
    }


def top(module: str) -> str:
    return module.partition(".")[0]


def test_backends_import_torch_and_their_own() -> None:
    allowed = {"backends", "torch", "triton", "cuda", "numpy", *sys.stdlib_module_names}
    assert {pair for pair in imports_of("backends") if top(pair[1]) not in allowed} == set()


def test_workloads_import_neither_torch_nor_the_rest() -> None:
    allowed = {"workloads", "numpy", "pyarrow", *sys.stdlib_module_names}
    assert {pair for pair in imports_of("workloads") if top(pair[1]) not in allowed} == set()


def test_the_report_reads_files_and_imports_nothing_that_made_them() -> None:
    ours = {pair for pair in imports_of("bench.report") if top(pair[1]) in PACKAGES}
    allowed = ("bench.report", "bench.errors", "bench.snapshots")  # whose reader needs no torch
    assert {pair for pair in ours if not pair[1].startswith(allowed)} == set()
    assert {
        pair for pair in imports_of("bench.report") if top(pair[1]) in ("torch", "hydra")
    } == set()


def test_the_engine_knows_backends_and_requests_only_by_their_contracts() -> None:
    outside = {pair for pair in imports_of("bench.engine") if top(pair[1]) in PACKAGES[1:]}
    assert {other for _, other in outside} <= {"backends.base", "workloads.base"}


def test_only_entry_points_import_hydra() -> None:
    users = {name for name, path in MODULES.items() if "hydra" in map(top, imported(path))}
    assert users == ENTRY_POINTS


def test_three_modules_import_vllm() -> None:
    users = {name for name, path in MODULES.items() if "vllm" in map(top, imported(path))}
    assert users == {"bench.vllm.observed", "bench.vllm.session", "bench.vllm.worker"}


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {
        name: {other for other in imported(path, nested=False) if other in MODULES} - {name}
        for name, path in MODULES.items()
    }
    while graph:
        leaves = {name for name, others in graph.items() if not others}
        assert leaves, f"import cycles among {sorted(graph)}"
        graph = {name: others - leaves for name, others in graph.items() if name not in leaves}


def test_the_parent_side_never_imports_torch() -> None:
    code = (
        f"import sys, {', '.join(PARENT)}\nprint(sorted({{'torch', 'triton'}} & set(sys.modules)))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_what_it_is(path: Path) -> None:
    marks_a_package = path.name == "__init__.py" and not tree(path).body
    assert marks_a_package or ast.get_docstring(tree(path))


def test_tests_are_no_packages() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


PAGE = ROOT / "ARCHITECTURE.md"


@pytest.mark.skipif(not PAGE.exists(), reason="ARCHITECTURE.md is not part of this copy")
def test_what_the_architecture_page_names_exists() -> None:
    names = re.findall(r"`([^`\s]+)`", PAGE.read_text(encoding="utf-8"))
    assert len(names) > 30
    missing = [name for name in names if not exists(name)]
    assert missing == []


def exists(name: str) -> bool:
    """Whether a path, a module or a package is there; NAME stands for what a reader adds."""
    if "NAME" in name:
        return (ROOT / name).parent.is_dir()
    if "/" in name or Path(name).suffix in {".py", ".md", ".yaml", ".toml"}:
        return (ROOT / name).exists()
    return top(name) not in PACKAGES or name in MODULES or (ROOT / name.replace(".", "/")).is_dir()
