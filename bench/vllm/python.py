"""The Python that has vLLM, whose own PyTorch and versions need an environment apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from bench.device.build import VirtualGpuLibraries
from bench.device.interpreter import Interpreter
from bench.device.virtual import preloaded
from bench.errors import SettingError
from bench.vllm.settings import VllmSettings

TESTED = ("0.33.0",)
MADE = Path(".venv-vllm/bin/python")
"""What `make vllm-env` makes."""

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_STARTUP_PLAN": "0",  # it would skip profiling
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC": "0",
}
"""What the virtual GPU needs of vLLM (docs/virtual_gpu.md), and the same on a card."""

_ASK = """
import json
from importlib.metadata import requires, version
from importlib.util import find_spec
found = {"vllm": None, "pins": None, "torch": version("torch"), "cuda": None, "nvml": None}
if find_spec("vllm"):
    found["vllm"] = version("vllm")
    pins = (each for each in requires("vllm") or () if each.startswith("torch=="))
    pin = next(pins, "torch==" + found["torch"]).partition(";")[0]
    found["pins"] = pin.removeprefix("torch==").strip()
from bench.device.build import build_virtual_gpu
from bench.errors import SettingError
try:
    libraries = build_virtual_gpu()
    found |= {"cuda": str(libraries.cuda), "nvml": str(libraries.nvml)}
except SettingError as error:
    found["why"] = str(error)
print("found", json.dumps(found))
"""


class VllmPython(NamedTuple):
    """An environment's Python: its vLLM's version, the virtual GPU for its PyTorch or why there
    is none, that PyTorch's version and the one that its vLLM pins."""

    executable: str
    vllm: str
    libraries: VirtualGpuLibraries | None
    why_none: str | None
    torch: str | None = None
    pinned_torch: str | None = None

    def interpreter(self) -> Interpreter:
        """What a launcher of any device starts."""
        return Interpreter(self.executable, self.libraries)

    def environment(self, *, virtual: bool) -> dict[str, str]:
        """For a process that runs vLLM: what it starts itself has to find the virtual GPU too."""
        if not virtual or self.libraries is None:
            return dict(ENVIRONMENT)
        preload = preloaded(os.environ, self.libraries)["LD_PRELOAD"]
        return ENVIRONMENT | {"LD_PRELOAD": preload}


def find_vllm(settings: VllmSettings, *, virtual: bool) -> VllmPython:
    """The Python of `vllm.python`. Raises SettingError where there is no vLLM, an untested
    one that was not asked for, or no virtual GPU where it is wanted."""
    found = _asked(_executable(settings.python))
    if found.vllm not in TESTED and not settings.untested:
        raise SettingError(
            f"vLLM {found.vllm} ({found.executable}) is not among the versions that were tested, "
            f"{', '.join(TESTED)}: install one of these, or set vllm.untested=true to run "
            "it all the same."
        )
    if found.torch != found.pinned_torch and not settings.untested:
        raise SettingError(
            f"vLLM {found.vllm} ({found.executable}) is made for PyTorch {found.pinned_torch} and "
            f"would get {found.torch}: leave PYTHONPATH unset, install the one that it pins, or "
            "set vllm.untested=true to run it all the same."
        )
    if virtual and found.libraries is None:
        raise SettingError(str(found.why_none))
    return found


def version_here() -> str | None:
    """Of vLLM in this environment."""
    try:
        return version("vllm")
    except PackageNotFoundError:
        return None


def _executable(asked: str | None) -> str:
    if asked is not None:
        path = Path(asked).expanduser()
        if not os.access(path, os.X_OK) or path.is_dir():
            raise SettingError(
                f"vllm.python={asked} is no program: give the Python of an environment "
                "with vLLM, such as .venv-vllm/bin/python."
            )
        return str(path.absolute())
    if find_spec("vllm") is not None:
        return sys.executable
    checkout = Path(__file__).parents[2]
    for folder in (Path.cwd(), checkout):
        if os.access(folder / MADE, os.X_OK):
            return str(folder / MADE)
    raise SettingError(
        "engine=vllm runs vLLM, which has an environment of its own, and there is none: `make "
        "vllm-env` makes .venv-vllm, or give the Python of an environment with "
        "`pip install 'fragbench[vllm]'` as vllm.python."
    )


@cache
def _asked(executable: str) -> VllmPython:
    """Raises SettingError for a Python without vLLM or fragbench."""
    done = subprocess.run([executable, "-c", _ASK], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("found ")]
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise SettingError(
            f"vllm.python={executable} cannot run fragbench ({last}): install "
            "'fragbench[vllm]' there."
        )
    found = json.loads(lines[0].removeprefix("found "))
    if found["vllm"] is None:
        raise SettingError(
            f"vllm.python={executable} has no vLLM: install 'fragbench[vllm]' there."
        )
    libraries = None
    if found["cuda"] is not None:
        libraries = VirtualGpuLibraries(Path(found["cuda"]), Path(found["nvml"]))
    torch, pinned = (found[name].partition("+")[0] for name in ("torch", "pins"))
    return VllmPython(executable, found["vllm"], libraries, found.get("why"), torch, pinned)
