"""`fragbench exec`: runs a PyTorch program on a virtual GPU."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from bench.device.build import build_virtual_gpu
from bench.device.virtual import PREFIX, allocator_environment, gpu_environment, preloaded
from bench.errors import SettingError
from bench.gpu import Gpu
from bench.packaged import load_gpu

USAGE = """\
usage: fragbench exec [gpu=NAME] [memory=GIB] [context=GIB] [alloc_conf=SETTINGS]
                      [trace=true] -- COMMAND...

Runs a PyTorch program on a virtual GPU: PyTorch's own caching allocator on a card of the given
size. Kernels do nothing and values read back from the device are zeros.

  gpu=a100_80gb    a card of conf/gpu/
  memory=24        its memory in GiB, instead of the card's own
  context=0.5      what the CUDA context, modules and graphs take of it, in GiB
  alloc_conf=...   what PYTORCH_ALLOC_CONF would hold, such as expandable_segments:True
  trace=true       list the CUDA functions that the program called, with counts; name at once
                   those that the virtual GPU lacks
"""


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
    environment |= gpu_environment(request.gpu, trace=request.trace)
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
    settings = {"gpu": "a100_80gb", "memory": "", "context": "", "alloc_conf": "", "trace": "false"}
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
    if settings["context"]:
        gpu = _with_context(gpu, settings["context"])
    if settings["memory"]:
        gpu = resized("exec", gpu, settings["memory"])
    if settings["trace"].lower() not in ("true", "false"):
        raise SettingError(f"exec: trace={settings['trace']} must be true or false")
    return _Request(
        gpu, settings["alloc_conf"] or None, settings["trace"].lower() == "true", command
    )


def _with_context(gpu: Gpu, context: str) -> Gpu:
    try:
        context_gib = float(context)
    except ValueError:
        context_gib = -1.0
    if not 0 <= context_gib < gpu.memory_gib:
        raise SettingError(
            f"exec: context={context} must be a number of GiB from 0 to below {gpu.memory_gib} "
            f"(gpu={gpu.name}'s memory); the card's own is {gpu.context_gib}"
        )
    return replace(gpu, context_gib=context_gib)


def resized(command: str, gpu: Gpu, memory: str) -> Gpu:
    """The card with so many GiB, as `memory=` gives them. Raises SettingError."""
    try:
        memory_gib = float(memory)
    except ValueError:
        memory_gib = 0.0
    # An upper bound keeps the sizes within the virtual GPU's range of addresses.
    if not gpu.context_gib < memory_gib <= 2048:
        raise SettingError(
            f"{command}: memory={memory} must be a number of GiB above {gpu.context_gib} (what the "
            "CUDA context takes) and at most 2048"
        )
    return replace(gpu, memory_gib=memory_gib)
