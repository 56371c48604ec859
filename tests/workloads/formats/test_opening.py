from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads.base import WorkloadError
from workloads.formats import opening
from workloads.formats.base import MalformedLineError
from workloads.formats.opening import (
    compression,
    first_line,
    numbered_lines,
    reading,
    text_blocks,
)

Pack = Callable[[bytes], bytes]
TEXT = "".join(f"{number},{number * 7919 % 1000}\n" for number in range(5000)).encode()


def zstd(content: bytes) -> bytes:
    packed: bytes = pa.compress(content, codec="zstd", asbytes=True)
    return packed


def write(folder: Path, content: bytes) -> Path:
    path = folder / "trace.txt"
    path.write_bytes(content)
    return path


def lines(path: Path) -> list[str]:
    return [line for _, line in numbered_lines(path)]


@pytest.mark.parametrize(("pack", "name"), [(bytes, None), (gzip.compress, "gzip"), (zstd, "zstd")])
def test_compression_is_told_by_content_not_by_name(
    tmp_path: Path, pack: Pack, name: str | None
) -> None:
    path = write(tmp_path, pack(TEXT))
    assert compression(path) == name
    assert first_line(path) == "0,0"
    assert "\n".join(lines(path)).encode() == TEXT.rstrip()


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_archives_one_after_another_are_one_text(tmp_path: Path, pack: Pack) -> None:
    assert lines(write(tmp_path, pack(b"a\n") + pack(b"b\nc"))) == ["a", "b", "c"]


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
@pytest.mark.parametrize("kept", [0.5, -1])
def test_a_cut_archive_is_one_sentence(tmp_path: Path, pack: Pack, kept: float) -> None:
    packed = pack(TEXT)
    cut = packed[: int(len(packed) * kept)] if kept > 0 else packed[:-1]
    path = write(tmp_path, cut)
    message = r"trace\.txt cannot be read: Truncated .*\.$"
    with pytest.raises(WorkloadError, match=message), reading(path):
        lines(path)


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_damaged_archive_is_one_sentence(tmp_path: Path, pack: Pack) -> None:
    packed = bytearray(pack(TEXT))
    packed[6:30] = b"\xff" * 24  # its start: zstd has no checksum by itself
    path = write(tmp_path, bytes(packed))
    with pytest.raises(WorkloadError, match=r"trace\.txt cannot be read: .*\.$"), reading(path):
        lines(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="ab \n\r\x0b\u2028é", max_size=60), st.integers(1, 9), st.integers(0, 3))
def test_blocks_are_the_lines_in_pieces(tmp_path: Path, text: str, size: int, after: int) -> None:
    path = write(tmp_path, text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "_BLOCK_CHARACTERS", size)
        blocks = list(text_blocks(path, after))
    found = [
        (number, line.strip())
        for first, block in blocks
        for number, line in enumerate(block.split("\n"), first)
        if line.strip()
    ]
    assert found == [line for line in numbered_lines(path) if line[0] > after]
    assert all(block.endswith("\n") for _, block in blocks[:-1])


def test_a_line_without_end_is_refused_before_it_fills_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "_LINE_CHARACTERS", 1000)
    path = write(tmp_path, b"short\n" + b"x" * 998 + b"\n" + b"y" * 5000)
    with pytest.raises(MalformedLineError, match=r"line 3: 'yyy.* is longer than"):
        lines(path)
    assert lines(write(tmp_path, b"x" * 999)) == ["x" * 999]


def test_a_file_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="nowhere cannot be read: No such file or directory"):
        first_line(tmp_path / "nowhere")
    with pytest.raises(WorkloadError, match="cannot be read: Is a directory"):
        first_line(tmp_path)
