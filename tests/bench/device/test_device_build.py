"""Building the virtual GPU's libraries, and the sentences when that cannot be."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.device import build, probe
from bench.device.build import build_virtual_gpu, check_virtual_gpu
from bench.device.probe import resolve_device
from bench.errors import SettingError


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRAGBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_libraries_are_built_once_and_used_again(empty_cache: Path) -> None:
    first = build_virtual_gpu()
    written = first.cuda.stat().st_mtime_ns
    assert build_virtual_gpu() == first
    assert first.cuda.stat().st_mtime_ns == written
    assert [path.name for path in empty_cache.iterdir()] == [first.cuda.parent.name]


def test_what_was_built_needs_no_compiler_any_more(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = build.find_compiler()
    monkeypatch.setenv("CC", " ".join(compiler))
    built = build_virtual_gpu()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert build_virtual_gpu() == built


def test_processes_that_build_at_once_agree(empty_cache: Path) -> None:
    script = "from bench.device.build import build_virtual_gpu as b; print(b().cuda)"
    builders = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = {builder.communicate()[0].strip() for builder in builders}
    assert {builder.returncode for builder in builders} == {0}
    assert len(outputs) == 1
    assert len(list(empty_cache.iterdir())) == 1


def test_a_missing_compiler_says_what_to_install(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc")
    with pytest.raises(SettingError, match=r"C compiler.*/nonexistent/cc.*install.*device=cpu"):
        build_virtual_gpu()
    assert not empty_cache.exists()


def test_a_failing_compiler_is_quoted(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(SettingError, match=r"cannot compile .*device=cpu"):
        build_virtual_gpu()
    assert list(empty_cache.iterdir()) == []


def test_another_system_is_sent_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SettingError, match=r"Linux.*darwin.*device=cpu"):
        check_virtual_gpu()


def test_another_machine_is_sent_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(SettingError, match=r"riscv64.*device=cpu"):
        check_virtual_gpu()


def test_a_cache_folder_that_cannot_be_preloaded_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FRAGBENCH_CACHE", str(tmp_path / "with space"))
    with pytest.raises(SettingError, match="FRAGBENCH_CACHE"):
        build_virtual_gpu()


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("__version__ = '2.14.1+cpu'\ncuda: Optional[str] = None\n", "2.14.1+cpu is CPU only"),
        ("__version__ = '2.14.1'\ncuda: Optional[str] = '13.0'\n", "CUDA headers"),
        (None, "PyTorch is not installed"),
    ],
)
def test_a_pytorch_that_will_not_do_is_named(
    tmp_path: Path, version: str | None, sentence: str
) -> None:
    """In a process whose PyTorch is a folder with nothing but its version."""
    if version is not None:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").touch()
        (tmp_path / "torch" / "version.py").write_text(version)
    root = str(Path(build.__file__).parents[2])
    script = (
        "import sys; sys.path = [p for p in sys.path if 'site-packages' not in p]\n"
        f"sys.path[:0] = {[str(tmp_path), root]!r}\n"
        "from bench.device.build import build_virtual_gpu\n"
        "from bench.errors import SettingError\n"
        "try: build_virtual_gpu()\n"
        "except SettingError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert sentence in done.stdout


# --- choosing a device ----------------------------------------------------------------------------


def machine(gpus: tuple[str, ...], cuda: str | None, complaint: str | None) -> probe.Machine:
    return probe.Machine(gpus, cuda, complaint)


@pytest.mark.parametrize(
    ("found", "device"),
    [
        (machine(("NVIDIA H200",), "13.0", None), "cuda"),
        (machine(("NVIDIA H200",), None, "CPU only"), "cpu"),
        (machine((), "13.0", None), "virtual"),
        (machine((), "13.0", "no compiler"), "cpu"),
    ],
)
def test_auto_takes_cuda_else_virtual_else_cpu(
    found: probe.Machine, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "probe", lambda: found)
    assert resolve_device("auto") == device


def test_cuda_without_a_gpu_or_a_cuda_pytorch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "probe", lambda: machine((), "13.0", None))
    with pytest.raises(SettingError, match=r"device=cuda needs an NVIDIA GPU.*device=virtual"):
        resolve_device("cuda")
    monkeypatch.setattr(probe, "probe", lambda: machine(("NVIDIA H200",), None, "CPU only"))
    with pytest.raises(SettingError, match=r"device=cuda needs a CUDA build"):
        resolve_device("cuda")


def test_an_unknown_device_lists_what_there_is() -> None:
    with pytest.raises(SettingError, match=r"device=tpu .* auto, virtual, cuda, cpu"):
        resolve_device("tpu")


def test_the_probe_sees_the_real_driver_and_not_the_virtual_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = probe.probe.__wrapped__()
    monkeypatch.setenv("LD_PRELOAD", str(build_virtual_gpu().cuda))
    assert os.environ["LD_PRELOAD"]
    assert probe.probe.__wrapped__() == before
