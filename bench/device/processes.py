"""What a forked job and its server ask of the operating system (Linux)."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import select
import signal
from contextlib import suppress
from typing import Any

_PR_SET_PDEATHSIG = 1


def outcome_of(exit_code: int) -> dict[str, Any]:
    """What became of a process that ended without saying."""
    if exit_code >= 0:
        cause = f"the process exited with code {exit_code} before its job was done"
        return {"status": "crashed", "cause": cause, "exit_code": exit_code}
    name = signal.Signals(-exit_code).name
    why = " (out of host memory?)" if name == "SIGKILL" else ""
    return {"status": "killed", "cause": f"killed by {name}{why}", "signal": name}


def has_ended(pidfd: int) -> bool:
    """Whether the process of a descriptor from `os.pidfd_open` has ended."""
    return bool(select.select([pidfd], [], [], 0)[0])


def own_group(pid: int) -> None:
    """Gives a job a process group. Parent and child both ask: whoever is first has done it."""
    with suppress(PermissionError, ProcessLookupError):
        os.setpgid(pid, pid)


def kill_group(pid: int) -> None:
    """Kills a job and whatever it started."""
    with suppress(PermissionError, ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def die_with(parent: int) -> None:
    """Has the kernel kill this process when its parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def redirect_output(log: str | None) -> None:
    """Appends what this process prints, and a native crash's stack, to a file (None: nowhere)."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    descriptor = os.open(log or os.devnull, flags, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    faulthandler.enable()
