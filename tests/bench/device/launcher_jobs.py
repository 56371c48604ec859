"""Ways for a job to end, for the tests of the launcher. No PyTorch here: a fork takes a moment."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.device.job import report_progress
from bench.errors import SettingError


def echo(payload: dict[str, Any]) -> dict[str, Any]:
    print("to the log")
    print("and errors", file=sys.stderr)
    return payload


def environment(payload: dict[str, Any]) -> dict[str, Any]:
    """What this process and one that it starts find in their environment."""
    names = ["LD_PRELOAD", "PYTHONPATH", "PYTORCH_ALLOC_CONF"]
    ask = f"import json, os; print(json.dumps([os.environ.get(n) for n in {names}]))"
    child = subprocess.run([sys.executable, "-c", ask], capture_output=True, check=True)
    return {
        "own": dict(zip(names, (os.environ.get(n) for n in names), strict=True)),
        "child": dict(zip(names, json.loads(child.stdout), strict=True)),
    }


def report_steps(payload: dict[str, Any]) -> str:
    for step in range(payload["steps"]):
        report_progress({"step": step, "filler": "x" * payload.get("filler", 0)})
    return "done"


def threads(payload: dict[str, Any]) -> int:
    """With how many PyTorch computes, where the server imported it."""
    import torch

    return torch.get_num_threads()


def refuse(payload: dict[str, Any]) -> None:
    raise SettingError("rate=-1 must be above 0")


def fail(payload: dict[str, Any]) -> None:
    raise ZeroDivisionError("by nought")


def return_what_json_cannot_hold(payload: dict[str, Any]) -> object:
    return {"a": object()}


def die(payload: dict[str, Any]) -> None:
    os.kill(os.getpid(), payload["signal"])
    time.sleep(60)


def crash_natively(payload: dict[str, Any]) -> None:
    ctypes.string_at(8)


def leave(payload: dict[str, Any]) -> None:
    os._exit(3)


def sleep(payload: dict[str, Any]) -> None:
    """Starts a process of its own, says which, and sleeps."""
    if payload.get("ignore"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    started = subprocess.Popen(["sleep", "600"])
    report_progress({"pids": [os.getpid(), started.pid]})
    time.sleep(600)


def clean_up_when_interrupted(payload: dict[str, Any]) -> None:
    try:
        report_progress({})  # the signal may come as soon as this is heard
        time.sleep(600)
    finally:
        Path(payload["path"]).write_text("kept")


def start_and_leave(payload: dict[str, Any]) -> int:
    return subprocess.Popen(["sleep", "600"]).pid
