"""Hostile files are refused in a sentence and do nothing."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path

import pytest

from tests.bench.snapshots.support import block, event, read_in_process, segment, write


class _Command:
    def __init__(self, touched: Path) -> None:
        self._touched = touched

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self._touched}",)


def refusal(path: Path) -> str:
    finished = read_in_process(path, path.with_suffix(".npz"))
    assert finished.status == "user_error", finished
    assert not path.with_suffix(".npz").exists()
    return str(finished.cause)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_file_that_runs_a_command_runs_none(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps([_Command(tmp_path / "touched")], protocol))
    assert "system, and a memory snapshot holds plain lists" in refusal(path)
    assert not (tmp_path / "touched").exists()


NAMES = {
    "global": b"cbuiltins\neval\n.",
    "instance": b"(S'1'\nibuiltins\neval\n.",
    "stack_global": b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.",
    "harmless class": b"ccollections\nOrderedDict\n.",
}


@pytest.mark.parametrize("name", NAMES)
def test_no_name_is_resolved(name: str, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(NAMES[name])
    assert "it asks for" in refusal(path)


BROKEN = {
    "nothing": b"",
    "text": b"hello",
    "truncated": pickle.dumps({"segments": []}, 4)[:-3],
    "outside": b"Pabc\n.",
    "extension": b"\x80\x02\x82\x01.",
    "a string of exabytes": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"x.",
    "a bytearray of terabytes": b"\x80\x05\x96" + struct.pack("<Q", 1 << 42) + b"x.",
    "memo of gigabytes": b"\x80\x04]r" + struct.pack("<I", 0xFFFFFFF0) + b".",
    "a number": b"K\x01.",
    "a list of itself": b"\x80\x04]\x94h\x00a.",
    "segments that are text": pickle.dumps({"segments": "abc"}),
    "negative bytes": pickle.dumps({"segments": [segment(0, -5, block(0, 1))]}),
    "beyond addresses": pickle.dumps({"segments": [segment(0, 1 << 40, block(0, 1))]}),
    "text for bytes": pickle.dumps(
        {"segments": [], "device_traces": [[event("alloc") | {"size": "x"}]]}
    ),
    "an event without size": pickle.dumps(
        {"segments": [], "device_traces": [[{"action": "alloc", "addr": 1}]]}
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_snapshot_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(BROKEN[name])
    said = refusal(path)
    assert str(path) in said
    assert said.endswith(".")
    assert "\n" not in said


def test_what_breaks_the_reading_process_breaks_no_other(tmp_path: Path) -> None:
    # The hash of a million nested tuples overflows the stack of whoever takes it.
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(b"\x80\x04})" + b"\x85" * 1_000_000 + b"K\x01s.")
    finished = read_in_process(path, tmp_path / "out.npz")
    assert finished.status != "ok"
    assert not (tmp_path / "out.npz").exists()
    good = write(tmp_path / "good.pickle", [segment(0, 20, block(0, 5))])
    assert read_in_process(good, tmp_path / "out.npz").status == "ok"


@pytest.mark.long
def test_a_file_that_unfolds_to_more_than_its_size_allows_is_stopped(tmp_path: Path) -> None:
    one = segment(0, 20, *([block(0, 5)] * 30_000))
    path = write(tmp_path / "snapshot.pickle", {"segments": [one] * 30_000})
    finished = read_in_process(path, tmp_path / "out.npz")
    assert finished.status != "ok"


def test_files_that_are_none_or_too_large_are_not_read(tmp_path: Path) -> None:
    assert "is no file" in refusal(tmp_path / "missing.pickle")
    large = tmp_path / "large.pickle"
    with large.open("wb") as file:
        file.truncate(5 << 30)
    assert "max_entries" in refusal(large)


def test_one_of_several_devices_is_chosen(tmp_path: Path) -> None:
    traces = [[event("alloc", 0, 5)], [], [event("alloc", 0, 7)]]
    ends = [segment(0, 20, block(0, 5)), segment(0, 20, block(0, 7), device=2)]
    path = write(tmp_path / "snapshot.pickle", {"device_traces": traces, "segments": ends})
    assert "2 devices: choose one with device_index=, from 0, 2" in refusal(path)
    chosen = read_in_process(path, tmp_path / "out.npz", device_index=2).result
    assert (chosen["device_index"], chosen["peak_requested_bytes"]) == (2, 7 << 20)
    missing = read_in_process(path, tmp_path / "out.npz", device_index=1)
    assert "choose from 0, 2" in str(missing.cause)
