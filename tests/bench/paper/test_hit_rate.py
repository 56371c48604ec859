"""A prefix cache alone, against counts by hand."""

from __future__ import annotations

import csv
import itertools
import json
import os
from pathlib import Path

import pytest

from bench.cli import main
from bench.paper.hit_rate import CACHES, POOLS_TOKENS
from bench.paper.replay import hit_rate

POOL = 1 << 19


def write_trace(path: Path, prompts: list[tuple[int, list[int]]]) -> str:
    rows = [
        {"timestamp": 1000 * number, "input_length": tokens, "output_length": 5, "hash_ids": ids}
        for number, (tokens, ids) in enumerate(prompts)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def found(path: str, cache: str, block_tokens: int, pool_tokens: int = POOL) -> int:
    payload = {"cache": cache, "block_tokens": block_tokens, "pool_tokens": pool_tokens,
               "path": path, "limit": None}  # fmt: skip
    result = hit_rate(payload)
    assert result["skipped"] == 0
    return result["found_tokens"]


@pytest.mark.parametrize(
    ("cache", "block_tokens", "tokens"),
    [
        # The second prompt is the first again: all but its last token, whose logits are wanted.
        # The third has its first 512 tokens.
        ("hash", 512, 512 + 512),
        ("hash", 64, (1024 - 64) + 512),
        ("radix", 512, 1023 + 512),
        ("radix", 64, 1023 + 512),
    ],
)
def test_what_a_cache_finds_of_three_prompts(
    cache: str, block_tokens: int, tokens: int, tmp_path: Path
) -> None:
    path = write_trace(tmp_path / "t.jsonl", [(1024, [1, 2]), (1024, [1, 2]), (1000, [1, 3])])
    assert found(path, cache, block_tokens) == tokens


@pytest.mark.parametrize("cache", ["hash", "radix"])
def test_a_pool_too_small_for_what_lies_between_forgets_the_oldest(
    cache: str, tmp_path: Path
) -> None:
    """Half the pool, then nearly all of it with another prompt, then the first one again."""
    half, most = POOL // 2, POOL - 4 * 512
    first = (half, list(range(half // 512)))
    other = (most, list(range(10_000, 10_000 + most // 512)))
    path = write_trace(tmp_path / "t.jsonl", [first, other, first])
    assert found(path, cache, 512) < 5 * 512
    assert found(path, cache, 512, 4 * POOL) >= half - 512


@pytest.mark.long
@pytest.mark.parametrize("cache", ["hash", "radix"])
def test_an_unbounded_pool_finds_what_the_trace_says_is_shared(cache: str) -> None:
    """The leading ids of each line that were on one before, counted in tokens: full blocks for the
    hash, all but the last token for the tree (a partial block's id stands for all of it)."""
    if "FRAGBENCH_TRACES" not in os.environ:
        pytest.skip("FRAGBENCH_TRACES does not name the folder of public traces")
    trace = Path(os.environ["FRAGBENCH_TRACES"]) / "mooncake_conversation.jsonl"
    seen: set[int] = set()
    full_tokens = all_tokens = 0
    lines = trace.read_text(encoding="utf-8").splitlines()
    for line in lines:
        row = json.loads(line)
        known = list(itertools.takewhile(seen.__contains__, row["hash_ids"]))
        most = row["input_length"] - 1
        full_tokens += min(len(known), most // 512) * 512
        all_tokens += min(len(known) * 512, most)
        seen.update(row["hash_ids"])
    found_tokens = found(str(trace), cache, 512, POOLS_TOKENS[-1])
    if cache == "hash":
        assert found_tokens == full_tokens
    else:  # a tree also finds first words that are the same by chance, 1 in 128,256 of them
        assert 0 <= found_tokens - all_tokens < 0.1 * len(lines)


def test_the_figure_says_what_each_cache_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_trace(tmp_path / "t.jsonl", [(1024, [1, 2]), (1024, [1, 2])])
    assert main(["figure", "hit_rate", "path=t.jsonl", "out=here"]) == 0
    with (tmp_path / "here" / "hit_rate.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(CACHES) * len(POOLS_TOKENS)
    for row in rows:
        most = 512 if "hash, blocks of 512" in row["system"] else 960
        most = 1023 if "radix" in row["system"] else most
        assert float(row["ours"]) == pytest.approx(100 * most / 2048, rel=1e-5)
        assert row["panel"] == "t.jsonl"


def test_a_trace_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.jsonl").write_text("no trace\n", encoding="utf-8")
    assert main(["figure", "hit_rate", "path=t.jsonl", "out=here"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("fragbench: ")
    assert said.count("\n") == 1
    assert "t.jsonl" in said
    assert not (tmp_path / "here").exists()
