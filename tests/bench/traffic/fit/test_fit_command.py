"""`fragbench workload fit=FILE`: what it writes runs, and is like its trace."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.cli import main
from bench.plugins import make
from tests.refusals import check_refused
from tests.virtual_gpu import skip_without_virtual_gpu
from workloads.lengths.lognormal import LognormalLengths

TRACES = os.environ.get("FRAGBENCH_TRACES")
needs_traces = pytest.mark.skipif(TRACES is None, reason="FRAGBENCH_TRACES is not set")
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def trace(folder: Path) -> str:
    """`fit=` of a trace of 300 requests, 2 a second."""
    rng = np.random.default_rng(5)
    prompts = LognormalLengths(mean_tokens=200, cv=0.8, max_tokens=4000).draw(rng, 300)
    lines = [
        f"2023-11-16 18:{number // 120:02d}:{number % 120 / 2:010.7f},{prompt},32\n"
        for number, prompt in enumerate(prompts.tolist())
    ]
    (folder / "small.csv").write_text(HEADER + "".join(lines), encoding="utf-8")
    return "fit=small.csv"


def fitted(*arguments: str) -> dict[str, Any]:
    """fit.json of a fit."""
    assert main(["workload", *arguments, "out=fit"]) == 0
    figures: dict[str, Any] = json.loads(Path("fit/fit.json").read_text(encoding="utf-8"))
    return figures


def test_what_is_written_is_previewed_by_the_printed_command(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = fitted(trace, "name=mine")
    (command,) = (line for line in capsys.readouterr().out.splitlines() if "Next: " in line)
    words = command.partition("fragbench ")[2].split()
    assert main([*words, "out=seen"]) == 0
    seen = json.loads(Path("seen/workload.json").read_text(encoding="utf-8"))
    assert (seen["workload"], seen["turns"]) == ("mine", 300)
    assert seen["rates"]["requests_per_s"] == pytest.approx(2.0)  # constant: 2 a second
    expected = figures["generated"]["prompt_tokens"]["p90"]["generated"]
    assert seen["lengths"]["prompt_tokens"]["p90"] == expected  # of the same seed
    assert seen["lengths"]["output_tokens"]["max"] == 32


def test_the_printed_section_is_the_file(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    fitted(trace, "kinds=1")
    said = capsys.readouterr().out
    assert Path("fit/conf/workload/fitted.yaml").read_text(encoding="utf-8") in said


@pytest.mark.long
def test_what_is_written_runs_by_the_printed_command(trace: str) -> None:
    skip_without_virtual_gpu()
    fitted(trace, "kinds=1")
    words = ["workload=fitted", "--config-dir", "fit/conf", "workload.num_requests=20"]
    assert main(["run", *words, "out=run"]) == 0
    summary = json.loads(Path("run/summary.json").read_text(encoding="utf-8"))
    assert summary["requests"]["completed"] == 20


@needs_traces
@pytest.mark.parametrize(
    ("name", "kinds"), [("azure_llm_2023_conv", 8), ("azure_llm_2023_code", 1)]
)
def test_as_many_generated_requests_have_the_azure_traces_percentiles(
    name: str, kinds: int
) -> None:
    """Of the conversation trace prompt + output is 19 % off at p50 where the two are independent:
    as many kinds are taken as it needs."""
    figures = fitted(f"fit={name}.csv")
    assert len(figures["workload"]["kinds"]) == len(figures["parts"]) == kinds
    for part in ("prompt_tokens", "output_tokens", "total_tokens"):
        for percentile, values in figures["generated"][part].items():
            assert abs(values["error"]) <= 0.05, (part, percentile)
    assert make(figures["workload"], "workload").name == "fitted"


@needs_traces
def test_mooncake_s_times_and_prefixes_are_told() -> None:
    figures = fitted("fit=mooncake_conversation.jsonl", "limit=3000", "kinds=1")
    assert figures["arrivals"]["step_s"] == pytest.approx(3, abs=0.01)
    assert 0.1 < figures["not_carried"]["prefix_found_share"] < 0.6


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["fit=no.csv"], ["fit is 'no.csv'", "no such file"]),
        (["fit="], ["fit has no value", "fit="]),
        (["fit=small.csv", "name=chat"], ["name=chat", "there already"]),
        (["fit=small.csv", "name=a/b"], ["name=a/b", "small letters"]),
        (["fit=small.csv", "kinds=0"], ["kinds=0", "1 to 64"]),
        (["fit=small.csv", "limit=0"], ["workload.limit is 0"]),
        (["fit=small.csv", "format=xml"], ["workload.format is 'xml'", "azure"]),
        (["fit=small.csv", "workload=chat"], ["workload=chat", "the trace"]),
        (["fit=small.csv", "fit=other.csv"], ["fit is given twice", "small.csv"]),
        (["fit=small.csv", "stop_after_s=30"], ["stop_after_s=30", "duration_s="]),
        (["fit=small.csv", "nmae=x"], ["nmae"]),
        (["fit=small.csv", "out=full"], ["out=full is not an empty folder"]),
    ],
)
def test_wrong_input_is_one_sentence_and_writes_nothing(
    arguments: list[str],
    parts: list[str],
    trace: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "full").mkdir()
    (folder / "full" / "mine.txt").touch()
    before = sorted(folder.rglob("*"))
    check_refused(["workload", *arguments], parts, capsys)
    assert sorted(folder.rglob("*")) == before
