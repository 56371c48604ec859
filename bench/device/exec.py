"""`fragbench exec`: runs a PyTorch program on a virtual GPU."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

from bench.device.build import build_virtual_gpu
from bench.device.virtual import PREFIX, allocator_environment, gpu_environment, preloaded
from bench.errors import SettingError
from bench.gpu import Gpu
from bench.packaged import load_gpu

USAGE = """\
usage: fragbench exec [gpu=NAME] [memory=GIB] [context=GIB] [modules=GIB] [graph=MIB]
                      [alloc_conf=SETTINGS] [trace=true] -- COMMAND...

Runs a PyTorch program on a virtual GPU: PyTorch's own caching allocator on a card of the given
size. Kernels do nothing and values read back from the device are zeros.

  gpu=a100_80gb    a card of conf/gpu/
  memory=24        its memory in GiB, instead of the card's own
  context=0.5      what the CUDA context takes of it, in GiB, from the first use of CUDA on
  modules=0        what the code of kernels takes, in GiB, as they are first launched
  graph=0          what the driver keeps of each instantiated CUDA graph, in MiB
  alloc_conf=...   what PYTORCH_ALLOC_CONF would hold, such as expandable_segments:True
  trace=true       list the CUDA functions that the program called, with counts; name at once
                   those that the virtual GPU lacks
"""


class _Taken(NamedTuple):
    """A setting for memory beside the allocator: a field of Gpu, and its unit."""

    field: str
    unit: str
    units_of_a_gib: int


_TAKEN = {
    "context": _Taken("context_gib", "GiB", 1),
    "modules": _Taken("modules_gib", "GiB", 1),
    "graph": _Taken("graph_mib", "MiB", 1024),
}


@dataclass(frozen=True, slots=True)
class _Request:
    gpu: Gpu
    alloc_conf: str | None
    trace: bool
    command: list[str]


def main(argv: Sequence[str]) -> int:
    """Replaces this process by the command, whose exit code is so ours.

    Returns 0 after `--help`. Raises SettingError for a setting that cannot be used.
    """
    if argv and argv[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    return _replace_process(_parse(argv))


def _replace_process(request: _Request) -> NoReturn:
    program = shutil.which(request.command[0])
    if program is None:
        raise SettingError(f"exec: there is no program {request.command[0]!r} to run")
    environment = preloaded(os.environ, build_virtual_gpu(traced=request.trace))
    environment |= gpu_environment(request.gpu, lazy_modules=True, trace=request.trace)
    environment[PREFIX + "SUMMARY"] = "1"
    if request.alloc_conf is not None:
        environment |= allocator_environment(request.alloc_conf)
    card = f"virtual {request.gpu.device_name}, {request.gpu.memory_bytes / 2**30:.2f} GiB"
    print(
        f"fragbench: {card}: kernels do nothing, values read back are zeros",
        file=sys.stderr,
        flush=True,
    )
    os.execve(program, request.command, environment)


def _parse(argv: Sequence[str]) -> _Request:
    if "--" not in argv:
        raise SettingError(
            "exec: put `--` between the settings and the command, as in `fragbench exec "
            "gpu=a100_80gb -- python script.py`"
        )
    split = list(argv).index("--")
    settings = dict.fromkeys(("gpu", "memory", *_TAKEN, "alloc_conf", "trace"), "")
    settings |= {"gpu": "a100_80gb", "trace": "false"}
    for argument in argv[:split]:
        name, equals, value = argument.partition("=")
        if not equals or name not in settings:
            raise SettingError(
                f"exec: {argument!r} is no setting: use {', '.join(f'{n}=' for n in settings)} "
                "before `--`"
            )
        settings[name] = value
    command = list(argv[split + 1 :])
    if not command:
        raise SettingError("exec: no command after `--`")
    gpu = load_gpu(settings["gpu"])
    gpu = _with_taken(gpu, {name: settings[name] for name in _TAKEN if settings[name]})
    if settings["memory"]:
        gpu = resized("exec", gpu, settings["memory"])
    if settings["trace"].lower() not in ("true", "false"):
        raise SettingError(f"exec: trace={settings['trace']} must be true or false")
    return _Request(
        gpu, settings["alloc_conf"] or None, settings["trace"].lower() == "true", command
    )


def _with_taken(gpu: Gpu, given: Mapping[str, str]) -> Gpu:
    """The card with what is taken of its memory, as `context=`, `modules=` and `graph=` give it."""
    taken: dict[str, Any] = {
        _TAKEN[name].field: _taken(gpu, name, value) for name, value in given.items()
    }
    return replace(gpu, **taken)


def _taken(gpu: Gpu, name: str, value: str) -> float:
    field, unit, units_of_a_gib = _TAKEN[name]
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    most = gpu.memory_gib * units_of_a_gib
    if not 0 <= number < most:
        raise SettingError(
            f"exec: {name}={value} must be a number of {unit} from 0 to below {most:g} "
            f"(gpu={gpu.name}'s memory); the card's own is {getattr(gpu, field)}"
        )
    return number


def resized(command: str, gpu: Gpu, memory: str) -> Gpu:
    """The card with so many GiB, as `memory=` gives them. Raises SettingError."""
    try:
        memory_gib = float(memory)
    except ValueError:
        memory_gib = 0.0
    taken_gib = gpu.context_gib + gpu.modules_gib
    # An upper bound keeps the sizes within the virtual GPU's range of addresses.
    if not taken_gib < memory_gib <= 2048:
        raise SettingError(
            f"{command}: memory={memory} must be a number of GiB above {taken_gib:g} (what the "
            "CUDA context and modules take) and at most 2048"
        )
    return replace(gpu, memory_gib=memory_gib)
