"""Builds the virtual GPU's C libraries, once for each version of them and of PyTorch."""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.device.stand_ins import HEADERS, stand_ins
from bench.device.wheel import TorchWheel, find_cuda_headers, find_torch
from bench.errors import SettingError

SOURCES = Path(__file__).parent / "native"
MODULE_PARTS = 32
"""In which the virtual GPU charges the code of kernels, a kernel each (docs/virtual_gpu.md)."""
FLAGS = ("-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread",
         f"-DMODULE_PARTS={MODULE_PARTS}")  # fmt: skip
TRACE_FLAGS = ("-finstrument-functions", "-fno-inline", "-fno-optimize-sibling-calls")
"""Make every function call the hook in `native/trace.c`."""
NVML_SOURCES = ("nvml.c",)
MACHINES = ("x86_64", "aarch64")


@dataclass(frozen=True, slots=True)
class VirtualGpuLibraries:
    """The two libraries that stand in for a GPU's: CUDA's runtime and driver, and NVML."""

    cuda: Path
    nvml: Path


def build_virtual_gpu(*, traced: bool = False) -> VirtualGpuLibraries:
    """The libraries for the installed PyTorch, built now if they have not been.

    Traced ones count every function that a program calls, which costs each call a little.
    Raises SettingError if this machine cannot build or use them.
    """
    flags = FLAGS + (TRACE_FLAGS if traced else ())
    folder, headers = _plan(flags)
    if not folder.is_dir():
        _build_into(folder, flags, headers)
    return VirtualGpuLibraries(folder / "libcuda.so.1", folder / "libnvidia-ml.so.1")


def check_virtual_gpu() -> None:
    """Whether build_virtual_gpu() can work, without building.

    Raises SettingError, with what to install or to use, if this machine cannot.
    """
    folder, _ = _plan(FLAGS)
    if not folder.is_dir():
        find_compiler()


def _plan(flags: tuple[str, ...]) -> tuple[Path, Path]:
    """The folder of the libraries and that of the CUDA headers they are built with."""
    _check_platform()
    wheel = find_torch()
    headers = find_cuda_headers(wheel)
    return cache_folder() / f"virtual_gpu-{_fingerprint(flags, wheel)}", headers


def cache_folder() -> Path:
    """Where built libraries are kept: $FRAGBENCH_CACHE, else fragbench/ in the user's cache.

    Raises SettingError for a path that LD_PRELOAD cannot hold.
    """
    given = os.environ.get("FRAGBENCH_CACHE")
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(given).absolute() if given else user_cache / "fragbench"
    if any(separator in str(folder) for separator in " :"):
        raise SettingError(
            f"the cache folder {str(folder)!r} has a space or a colon in its path, which the "
            "loader of libraries cannot take: set FRAGBENCH_CACHE to a folder without"
        )
    return folder


def find_compiler() -> list[str]:
    """The C compiler's command: $CC, else cc.

    Raises SettingError if there is none.
    """
    command = shlex.split(os.environ.get("CC") or "cc")
    if not command or shutil.which(command[0]) is None:
        raise SettingError(
            f"device=virtual needs a C compiler and {' '.join(command)!r} is not there: install "
            "one (`apt install gcc`), name one in $CC, or use device=cpu"
        )
    return command


def _check_platform() -> None:
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise SettingError(
            f"device=virtual needs Linux on {' or '.join(MACHINES)} and this is {sys.platform} on "
            f"{platform.machine()}: use device=cpu"
        )


def _fingerprint(flags: tuple[str, ...], wheel: TorchWheel) -> str:
    digest = hashlib.sha256()
    for part in (*flags, os.environ.get("CC") or "cc", wheel.version, wheel.cuda or ""):
        digest.update(part.encode() + b"\0")
    for source in [*sorted(SOURCES.rglob("*.[ch]")), Path(__file__).with_name("stand_ins.py")]:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def _build_into(folder: Path, flags: tuple[str, ...], headers: Path) -> None:
    """Builds beside the folder and renames: whoever sees the folder sees all of it."""
    compiler = [*find_compiler(), *flags, f"-I{SOURCES}", "-isystem", str(headers)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        refused = building / "refused.c"  # kept: the list of what is not supported
        refused.write_text(stand_ins(_preprocess(compiler, HEADERS)), encoding="utf-8")
        main = sorted(p for p in SOURCES.glob("*.c") if p.name not in NVML_SOURCES)
        _link(compiler, [*main, refused], building / "libcuda.so.1")
        _link(compiler, [SOURCES / n for n in NVML_SOURCES], building / "libnvidia-ml.so.1")
        building.chmod(0o755)
        try:
            building.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process built the same libraries meanwhile
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _preprocess(compiler: list[str], source: str) -> str:
    return _compile([*compiler, "-E", "-P", "-x", "c", "-"], source)


def _link(compiler: list[str], sources: list[Path], library: Path) -> None:
    # The loader takes a library for the one that a program asks for by its SONAME.
    soname = f"-Wl,-soname,{library.name}"
    _compile([*compiler, soname, *map(str, sources), "-o", str(library), "-ldl"])


def _compile(command: list[str], source: str = "") -> str:
    """What the compiler writes to its standard output. Raises SettingError if it fails."""
    done = subprocess.run(
        command, input=source, capture_output=True, text=True, env=_plain_environment()
    )
    if done.returncode:
        raise SettingError(
            f"device=virtual: {shlex.join(find_compiler())} cannot compile the virtual GPU "
            f"({_first_error(done.stderr)}): name another compiler in $CC or use device=cpu."
        )
    return done.stdout


def _first_error(output: str) -> str:
    lines = output.strip().splitlines() or ["it said nothing"]
    return next((line for line in lines if "error" in line), lines[-1]).strip()


def _plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
