"""Reads a pickle that may be hostile: plain containers, numbers and strings, and nothing else.

A pickle is a program. Every instruction that could do more than build plain values names a class or
a function first, and no name is resolved here. What is left to it is to exhaust memory, time or the
stack; so it runs in a process of its own, under limits (`limit_process`), and a process that dies
of them is a refusal.
"""

from __future__ import annotations

import pickle
import resource
from pathlib import Path
from typing import Any, NoReturn

from bench.errors import SettingError

MOST_FILE_BYTES = 4 << 30
BASE_BYTES, BYTES_A_BYTE = 1 << 30, 24
"""Memory that reading may take: dicts of small numbers take ten times their bytes in a file."""
BASE_S, FILE_BYTES_A_S = 30, 1 << 20
"""Seconds of CPU: files are read and understood at some 5 MiB/s."""

BROKEN = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError,
    OverflowError, RecursionError, MemoryError, ImportError,
)  # fmt: skip
"""What a file that is not what it should be can raise, here and in whoever reads its values."""

DUMP = "torch.cuda.memory._dump_snapshot(FILE)"


def limit_process(path: Path) -> None:
    """Bounds this process's memory and CPU time by the size of the file that it is to read.
    Raises SettingError for one that is too large, or no file."""
    if not path.is_file():
        raise SettingError(f"{path} is no file: give a snapshot that was dumped with {DUMP}.")
    size = path.stat().st_size
    if size > MOST_FILE_BYTES:
        raise SettingError(
            f"{path} has {size / 2**30:.1f} GiB; at most {MOST_FILE_BYTES >> 30} are read: record "
            "with a smaller max_entries, or with context=None."
        )
    _limit(resource.RLIMIT_AS, BASE_BYTES + BYTES_A_BYTE * size)
    _limit(resource.RLIMIT_CPU, BASE_S + size // FILE_BYTES_A_S)
    _limit(resource.RLIMIT_CORE, 0)


def load_plain(path: Path) -> Any:
    """What a pickle of plain values holds. Raises SettingError for any other file."""
    try:
        with path.open("rb") as file:
            return _PlainUnpickler(file).load()
    except _Refused as error:
        raise SettingError(
            f"{path} is refused: it asks for {error}, and a memory snapshot holds plain lists, "
            "dicts, numbers and text only."
        ) from error
    except OSError as error:
        raise SettingError(f"{path} cannot be read: {error.strerror}.") from error
    except BROKEN as error:
        raise SettingError(
            f"{path} is no memory snapshot: it cannot be read as a pickle of plain values "
            f"({type(error).__name__}); dump one with {DUMP}."
        ) from error


class _Refused(Exception):  # noqa: N818 - what was asked for, not an error's name
    pass


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise _Refused(f"{module_name}.{global_name}"[:100])

    def persistent_load(self, pid: object) -> NoReturn:
        raise _Refused("an object outside the file")


def _limit(kind: int, most: int) -> None:
    """Sets a limit, unless there is a lower one."""
    _, hard = resource.getrlimit(kind)
    lower = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (lower, lower))
