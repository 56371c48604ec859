"""What happens inside a forked process: a function is called and its outcome reported.

Lines of JSON go up a pipe: any number of `{"progress": ...}`, then one `{"outcome": ...}`.
"""

from __future__ import annotations

import importlib
import json
import os
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

TRACEBACK_CHARACTERS = 8000

_channel: int | None = None


def report_progress(data: Mapping[str, Any]) -> None:
    """Sends something that JSON can hold to whoever waits for this job. For one thread.

    Outside a job it does nothing.
    """
    if _channel is not None:
        _send(_channel, {"progress": dict(data)})


def run_job(
    target: str, payload: Mapping[str, Any], user_errors: Sequence[str], channel: int
) -> None:
    """Calls `module:function` with a payload and reports what became of it on a pipe."""
    global _channel
    _channel = channel
    try:
        module, _, function = target.partition(":")
        result = getattr(importlib.import_module(module), function)(dict(payload))
        line = _line({"outcome": {"status": "ok", "result": result}})
    except KeyboardInterrupt:
        line = _line({"outcome": {"status": "interrupted", "cause": "interrupted"}})
    except BaseException as error:
        traceback.print_exc()
        line = _line({"outcome": _failure(error, user_errors)})
    _write(channel, line)


def _failure(error: BaseException, user_errors: Sequence[str]) -> dict[str, Any]:
    names = {f"{kind.__module__}:{kind.__qualname__}" for kind in type(error).__mro__}
    kind = type(error)
    return {
        "status": "user_error" if names & set(user_errors) else "crashed",
        "cause": str(error) or kind.__qualname__,
        "error_type": kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}",
        "traceback": "".join(traceback.format_exception(error))[-TRACEBACK_CHARACTERS:],
    }


def _send(channel: int, message: Mapping[str, Any]) -> None:
    _write(channel, _line(message))


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _write(channel: int, line: bytes) -> None:
    view = memoryview(line)
    while view:
        view = view[os.write(channel, view) :]
