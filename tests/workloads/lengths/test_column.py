from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workloads.base import WorkloadError
from workloads.lengths.base import Lengths
from workloads.lengths.column import ColumnLengths

VALUES = [30, 5, 2000, 5]
CSV = "time,tokens\n" + "".join(f"{at},{value}\n" for at, value in enumerate(VALUES))
JSONL = "".join(json.dumps({"time": 0, "tokens": value}) + "\n" for value in VALUES)


def write(folder: Path, content: str | bytes) -> str:
    path = folder / "lengths"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def parquet(**columns: list[Any]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, row_group_size=3)
    return sink.getvalue().to_pybytes()


def zstd(content: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content.encode())
    return sink.getvalue().to_pybytes()


SAME = {
    "csv": CSV,
    "crlf": CSV.replace("\n", "\r\n").removesuffix("\r\n"),
    "spaces": CSV.replace(",5\n", ", 5.0 \n").replace("\n1,", "\n\n1,"),
    "quotes": 'text,tokens\n"a, b\nc",30\n"""",5\nd,2000\ne,5\n',
    "byte-order mark": "\ufeff" + CSV,
    "jsonl": JSONL,
    "floats": JSONL.replace("5}", '"5.0"}').replace("30}", "30.0}"),
    "gzip": gzip.compress(CSV.encode()),
    "zstd": zstd(JSONL),
    "parquet": parquet(time=[0, 1, 2, 3], tokens=VALUES),
    "parquet floats": parquet(tokens=[float(value) for value in VALUES]),
}


@pytest.mark.parametrize("content", SAME.values(), ids=SAME.keys())
def test_the_column_is_read_from_any_of_its_files(tmp_path: Path, content: str | bytes) -> None:
    lengths = ColumnLengths(path=write(tmp_path, content), column="tokens")
    assert isinstance(lengths, Lengths)
    assert lengths.values.tolist() == [5, 5, 30, 2000]
    assert (lengths.min_tokens, lengths.max_tokens, lengths.mean_tokens) == (5, 2000, 510)


def test_rows_are_drawn_all_alike(tmp_path: Path) -> None:
    lengths = ColumnLengths(path=write(tmp_path, CSV), column="tokens")
    drawn = lengths.draw(np.random.default_rng(0), 20_000)
    for tokens, share in ((5, 0.5), (30, 0.25), (2000, 0.25)):
        error = np.sqrt(share * (1 - share) / 20_000)
        assert (drawn == tokens).mean() == pytest.approx(share, abs=4 * error)
    n = np.array([0, 4, 5, 29, 30, 1999, 2000])
    assert lengths.share_above(n).tolist() == [1, 1, 0.5, 0.5, 0.25, 0.25, 0]


def test_two_draws_in_a_row_are_one_draw(tmp_path: Path) -> None:
    lengths = ColumnLengths(path=write(tmp_path, CSV), column="tokens")
    rng = np.random.default_rng(3)
    parts = [*lengths.draw(rng, 7), *lengths.draw(rng, 0), *lengths.draw(rng, 93)]
    assert parts == lengths.draw(np.random.default_rng(3), 100).tolist()


def test_lengths_outside_the_bounds_become_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path, CSV)
    lengths = ColumnLengths(path=path, column="tokens", min_tokens=10, max_tokens=1000)
    assert lengths.values.tolist() == [10, 10, 30, 1000]
    assert lengths.mean_tokens == (10 + 10 + 30 + 1000) / 4


def test_a_traces_column_has_the_traces_lengths(public_trace: Callable[[str], Path]) -> None:
    path = str(public_trace("azure_llm_2023_conv.csv"))
    lengths = ColumnLengths(path=path, column="GeneratedTokens")
    # mean and extremes as conf/workload/kinds has them
    assert len(lengths.values) == 19_366
    assert lengths.mean_tokens == pytest.approx(211.1, abs=0.05)
    assert (lengths.min_tokens, lengths.max_tokens) == (7, 1000)


REFUSED: list[tuple[str | bytes, str]] = [
    (CSV.replace("2000", "x"), "lengths, line 4, column tokens: 'x' is not a whole number"),
    (CSV.replace("2000", "1.5"), "line 4, column tokens: '1.5' is not a whole number"),
    (CSV.replace("2000", ""), "line 4, column tokens: '' is not a whole number"),
    (CSV.replace("2000", "0"), "line 4, column tokens: 0 is not from 1 to 2,147,483,647"),
    (CSV.replace("2,2000", "2"), "line 4: '2' has 1 values; the header has 2"),
    (CSV + '9,"1', r"line 6: '9,\"1' is not CSV \(unexpected end"),
    (JSONL.replace("2000", "true"), "line 3, column tokens: True is not a whole number"),
    (JSONL.replace("2000}", "2000"), "line 3: .* is not JSON"),
    (JSONL + "[1]\n", r"line 5: '\[1\]' is not a JSON object"),
    (JSONL + '{"time": 3}', "line 5: .* has no tokens; it has time"),
    (parquet(tokens=[9, 9, 9, 9, None]), "line 5, column tokens: None is not a whole number"),
    (parquet(tokens=VALUES)[:-9] + b"PAR1", "is not a whole Parquet file"),
    ("time,tokens\n", "lengths: the file has no rows; give one that has lengths"),
    ("", "lengths: the file is empty"),
    ("time,output\n1,2\n", "is 'tokens'; .* one of the columns of lengths: time, output; name"),
    (parquet(output=[1]), "is 'tokens'; it must be one of the columns of lengths: output"),
    (gzip.compress(CSV.encode())[:-12], "lengths cannot be read"),
]


@pytest.mark.parametrize(("content", "message"), REFUSED, ids=[each[1] for each in REFUSED])
def test_a_file_that_cannot_be_used_is_refused(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        ColumnLengths(path=write(tmp_path, content), column="tokens")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path": None}, "path of column lengths is null"),
        ({"path": "nowhere.csv"}, "path of column lengths is 'nowhere.csv'; no such file"),
        ({"column": None}, "column of column lengths is null; it must be a column's name"),
        ({"column": 1}, "column of column lengths is 1"),
        ({"min_tokens": 0}, "min_tokens of column lengths is 0"),
        ({"min_tokens": 9, "max_tokens": 8}, "max_tokens of column lengths is 8"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        ColumnLengths(**{"path": write(tmp_path, CSV), "column": "tokens", **settings})
