from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workloads.base import WorkloadError
from workloads.lengths.base import Pairs
from workloads.lengths.empirical import PairsFromFile


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "lengths.csv"
    path.write_text("prompt_tokens,output_tokens\n10,1\n20,2\n2000,3\n30,9000\n5,5\n")
    return str(path)


def pairs_of(pairs: PairsFromFile) -> list[tuple[int, int]]:
    return list(zip(pairs.prompts.tolist(), pairs.outputs.tolist(), strict=True))


def test_pairs_stay_together_and_are_drawn_all_alike(table: str) -> None:
    pairs = PairsFromFile(path=table)
    assert isinstance(pairs, Pairs)
    prompts, outputs = pairs.draw(np.random.default_rng(0), 20_000)
    drawn = Counter(zip(prompts.tolist(), outputs.tolist(), strict=True))
    assert set(drawn) == {(10, 1), (20, 2), (2000, 3), (30, 9000), (5, 5)}
    for number in drawn.values():
        assert number == pytest.approx(4000, abs=4 * np.sqrt(20_000 * 0.16))


def test_two_draws_in_a_row_are_one_draw(table: str) -> None:
    pairs = PairsFromFile(path=table)
    rng = np.random.default_rng(3)
    parts = [pairs.draw(rng, size) for size in (7, 0, 93)]
    whole = pairs.draw(np.random.default_rng(3), 100)
    for column in (0, 1):
        assert np.concatenate([part[column] for part in parts]).tolist() == whole[column].tolist()


def test_pairs_outside_the_limits_are_left_out_and_counted(table: str) -> None:
    pairs = PairsFromFile(path=table, min_tokens=2, max_prompt_tokens=1024, max_total_tokens=2048)
    assert pairs_of(pairs) == [(20, 2), (5, 5)]
    assert pairs.left_out == 3
    assert pairs.longest_prompt_tokens == 20


def test_a_sharegpt_file_is_filtered_as_vllm_does(tmp_path: Path) -> None:
    def conversation(*texts: str) -> dict[str, Any]:
        speakers = ("human", "gpt")
        return {
            "id": "x",
            "conversations": [
                {"from": speakers[n % 2], "value": text} for n, text in enumerate(texts)
            ],
        }

    conversations = [
        conversation("a" * 41, "b" * 80, "c" * 999),  # 10.25 tokens are 11; the third is not read
        conversation("question without an answer"),
        conversation("hi", "b" * 80),  # 1 token: too short
        conversation("é" * 100, "b" * 16),  # 200 bytes
        conversation("a" * 4100, "b" * 80),  # 1,025 tokens: too long
        conversation(),
    ]
    path = tmp_path / "ShareGPT.json"
    path.write_text(json.dumps(conversations), encoding="utf-8")
    pairs = PairsFromFile(
        path=str(path), min_tokens=4, max_prompt_tokens=1024, max_total_tokens=2048
    )
    assert pairs_of(pairs) == [(11, 20), (50, 4)]
    assert pairs.left_out == 2


def test_a_traces_lengths_are_its_own(public_trace: Callable[[str], Path]) -> None:
    pairs = PairsFromFile(path=str(public_trace("azure_llm_2023_conv.csv")))
    # the trace's means, docs/workloads.md
    assert len(pairs.prompts) == 19_366
    assert pairs.prompts.mean() == pytest.approx(1154.7, abs=0.05)
    assert pairs.outputs.mean() == pytest.approx(211.1, abs=0.05)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path": None}, r"workload\.kinds\.NAME\.pairs\.path is null"),
        ({"path": "nowhere.json"}, r"pairs\.path is 'nowhere.json'; no such file"),
        (
            {"format": "xml"},
            r"pairs\.format is 'xml'; it must be one of auto, azure, .*, jsonl; auto",
        ),
        ({"min_tokens": 0}, "min_tokens of length pairs is 0"),
        ({"max_prompt_tokens": 0}, "max_prompt_tokens of length pairs is 0"),
        ({"max_total_tokens": "2048"}, "max_total_tokens of length pairs is '2048'"),
        (
            {"min_tokens": 50},
            r"lengths\.csv: no pairs .* left: all 5 are outside .*; widen min_",
        ),
        ({"format": "sharegpt"}, r"lengths\.csv, line 1: 'prompt_tokens.* is not JSON"),
        ({"on_bad_row": "no"}, r"pairs\.on_bad_row is 'no'; it must be fail or skip"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    table: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        PairsFromFile(**{"path": table, **settings})


def test_a_file_without_pairs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_text("[]")
    with pytest.raises(WorkloadError, match=r"none\.json: no pairs .* in the file; give one that"):
        PairsFromFile(path=str(path))


def test_pairs_are_read_from_any_trace_in_any_order_of_time(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    lines = ["arrived_at,num_prefill_tokens,num_decode_tokens", "5,7,3", "x,1,1", "1,2.0,9"]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    with pytest.raises(WorkloadError, match=r"gz, line 3, column arrived_at: 'x' is not a number"):
        PairsFromFile(path=str(path))
    pairs = PairsFromFile(path=str(path), on_bad_row="skip", max_prompt_tokens=6)
    assert pairs_of(pairs) == [(2, 9)]
    facts = pairs.trace_facts()
    assert (facts["format"], facts["rows"], facts["skipped_rows"]) == ("vidur", 3, 1)
    assert (facts["requests"], facts["outside_limits"]) == (1, 1)
