from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from workloads.base import WorkloadError
from workloads.formats.registry import FORMATS, choose, names, recognise

FIRST_LINES = {
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens",
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
    "vidur": "arrived_at,num_prefill_tokens,num_decode_tokens",
    "splitwise": "request_id,arrival_timestamp,batch_size,prompt_size,token_size",
    "mooncake": '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0]}',
    "bailian": '{"chat_id": 3, "timestamp": 0.5, "input_length": 1, "output_length": 1}',
    "llmservingsim": '{"input_toks": 1, "output_toks": 1, "arrival_time_ns": 0}',
    "vllm": '{"prompt": "a"}',
    "sharegpt": '[{"id": "a", "conversations"',
    "fragbench": "PAR1\\x15\\x04",
    "csv": "prompt_tokens,output_tokens",
    "jsonl": '{"prompt_tokens": 1, "output_tokens": 1}',
}


def test_every_format_is_known_here() -> None:
    assert names() == ["auto", *FIRST_LINES]


@pytest.mark.parametrize("name", FIRST_LINES)
def test_a_first_line_is_recognised_as_its_formats_alone(name: str) -> None:
    assert [known.name for known in recognise(FIRST_LINES[name])] == [name]


def test_names_and_what_is_expected_are_said_of_every_format() -> None:
    assert all(known.expects.startswith(("a ", "the ")) for known in FORMATS)


@pytest.mark.parametrize(
    "line", ["PAR", "a,b", "{}", "5", '{"timestamp": 0}', '"', "{" + "[" * 9999]
)
def test_anything_else_is_not_recognised(tmp_path: Path, line: str) -> None:
    assert recognise(line) == []
    path = tmp_path / "trace"
    path.write_text(line)
    with pytest.raises(WorkloadError, match=r"trace: the format is not known from its first line"):
        choose("workload.format", "auto", path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x00\x01", "neither text in UTF-8 nor packed by gzip or zstd; convert the file"),
        (b"BZh91AY&SY\xff\xfe", "neither text in UTF-8"),
        (b'{"prompt": "' + b"a" * (1 << 20), "too long to tell the format by; name it with w"),
    ],
)
def test_a_file_that_no_line_can_tell_is_said_to_be_one(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(WorkloadError, match=message):
        choose("workload.format", "auto", path)


def test_milliseconds_are_not_guessed(tmp_path: Path) -> None:
    """Mooncake's keys without its ids may be of any unit."""
    path = tmp_path / "trace"
    path.write_text('{"timestamp": 60.0, "input_length": 100, "output_length": 10}')
    assert not choose("workload.format", "auto", path).time
    assert choose("workload.format", "mooncake", path).time == "timestamp"


def test_a_line_of_two_formats_asks_which(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(FIRST_LINES["mooncake"][:-1] + ', "prompt": "a"}')
    with pytest.raises(WorkloadError, match=r"formats mooncake and vllm; .* workload.format=moo"):
        choose("workload.format", "auto", path)
    assert choose("workload.format", "vllm", path).name == "vllm"


def test_what_is_known_of_its_kind_is_said(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("when,what\n")
    with pytest.raises(WorkloadError) as tables:
        choose("workload.format", "auto", path)
    assert "vidur: a header with arrived_at, num_prefill_tokens, num_dec" in str(tables.value)
    assert "mooncake" not in str(tables.value)
    path.write_text('{"when": 3}\n')
    with pytest.raises(WorkloadError, match="bailian: a JSON object with chat_id, timestamp, in"):
        choose("workload.format", "auto", path)


def test_an_unknown_name_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"format is 'xml'; it must be one of auto, azure, bur"):
        choose("workload.format", "xml", tmp_path)
    with pytest.raises(WorkloadError, match=r"format is \['azure'\]; it must be one of"):
        choose("workload.format", ["azure"], tmp_path)


def test_a_format_is_recognised_within_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(FIRST_LINES["azure"].encode()))
    assert choose("workload.format", "auto", path).name == "azure"
