"""The command: wrong input is one sentence, exit code 2 and nothing written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.cli import COMMANDS, main
from bench.experiment import CONF_FOLDER
from bench.help_text import DESCRIBED, LISTED

TRACE_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    return tmp_path


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The sentence that a wrong command gives, with nothing beside it and nothing written."""
    before = set(Path.cwd().rglob("*"))
    assert main(list(arguments)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("fragbench: ")
    assert said.err.count("\n") == 1
    assert said.err.rstrip()[-1] not in ",;:"
    assert set(Path.cwd().rglob("*")) == before
    return said.err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        # unknown options and groups
        (["backend=paging"], ["backend=paging", "bucketed", "contiguous", "paged"]),
        (["workload=chats"], ["workload=chats", "chat", "trace"]),
        (["model=gpt"], ["model=gpt", "llama3_8b"]),
        (["gpu=b100"], ["gpu=b100", "a100_80gb"]),
        (["experiment=none"], ["experiment=none", "paper_waste"]),
        (["workload/arrivals=never"], ["workload/arrivals=never", "gamma", "poisson"]),
        (["backend=sub/paged"], ["backend/sub=paged", "bucketed"]),
        (["backend="], ["backend=", "paged"]),
        (["backend=null"], ["group", "--help"]),
        (["backends=paged"], ["'backends'", "--cfg job"]),
        (["~backend"], ["backend", "no value"]),
        (["~nothing"], ["nothing", "--cfg job"]),
        # misspelt keys, at any depth
        (["sed=1"], ["'sed'"]),
        (["engine.max_seqs=3"], ["engine.max_seqs"]),
        (["workload.rate=3"], ["'workload.rate'"]),
        (["workload.kinds.chat.prompt.mean=3"], ["'workload.kinds.chat.prompt.mean'"]),
        (["backend.blocksize=3"], ["backend.blocksize"]),
        (["gpu.memory_gb=3"], ["gpu.memory_gb"]),
        (["+newkey=1"], ["newkey"]),
        (["+engine.newkey=1"], ["engine.newkey"]),
        # wrong types
        (["seed=abc"], ["seed=abc", "whole number"]),
        (["seed=null"], ["seed=null", "must have a value"]),
        (["engine.max_num_seqs=many"], ["engine.max_num_seqs=many", "whole number"]),
        (["engine.admit_whole_prompt=maybe"], ["engine.admit_whole_prompt=maybe", "true or false"]),
        (["gpu.memory_gib=[1]"], ["gpu.memory_gib=[1]", "number"]),
        (["engine.prefill=[a]"], ["engine.prefill=[a]"]),
        (["kv_dtype=${nowhere}"], ["kv_dtype", "nowhere"]),
        # out of range
        (["utilization=2"], ["utilization=2", "up to 1"]),
        (["kv_budget=12XB"], ["kv_budget=12XB", "12GiB"]),
        (["kv_budget=-1GiB"], ["kv_budget=-1GiB"]),
        (["max_model_len=100000"], ["max_model_len=100000", "8192", "lower"]),
        (["max_model_len=0"], ["max_model_len=0"]),
        (["sample_interval_s=0"], ["sample_interval_s=0", "above 0"]),
        (["sample_interval_s=inf"], ["sample_interval_s=inf"]),
        (["stop_after_s=nan"], ["stop_after_s=nan"]),
        (["jobs=0"], ["jobs=0"]),
        (["seed=-1"], ["seed=-1", "from 0 up"]),
        (["tensor_parallel=3"], ["tensor_parallel=3", "divide", "kv_heads=8"]),
        (["tensor_parallel=0"], ["tensor_parallel=0"]),
        (["engine.batching=foo"], ["engine.batching=foo", "continuous, static"]),
        (["engine.temperature=-1"], ["engine.temperature=-1", "0.8"]),
        (["kv_dtype=fp64"], ["kv_dtype=fp64", "bf16"]),
        (["device=tpu"], ["device=tpu", "virtual"]),
        (["engine.on_oom=maybe"], ["engine.on_oom=maybe", "queue"]),
        (["model.layers=0"], ["model.layers=0"]),
        (["from=nowhere"], ["from=nowhere", "config.yaml"]),
        (["from=a", "from=b"], ["from="]),
        # what cannot be read
        (["=x"], ["''"]),
        (["workload={a"], ["'workload={a'", "key=value"]),
        (["a[=3"], ["'a[=3'"]),
        ([""], ["''", "key=value"]),
        (["paged"], ["'paged'", "group=option"]),
        (["--wrong"], ["--wrong", "fragbench run --help"]),
        (["--cfg"], ["--cfg", "fragbench run --help"]),
        (["--config-name", "nope"], ["nope"]),
        (["backend=paged,bucketed"], ["fragbench matrix backend=paged,bucketed"]),
        (["seed=range(0,3)"], ["fragbench matrix seed=range(0,3)"]),
    ],
)
def test_a_wrong_setting_is_one_sentence(
    arguments: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = refusal(capsys, "run", *arguments)
    for part in parts:
        assert part in sentence


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["backend=paged,paging"], ["backend=paging", "bucketed"]),
        (["seed=1,x"], ["seed=x", "whole number"]),
        (["backend=paged,paged"], ["backend=paged", "once"]),
        (["out=a,b"], ["out", "a, b"]),
        (["model.layers=32,0"], ["model.layers=0"]),
    ],
)
def test_a_wrong_cell_stops_a_matrix_before_it_starts(
    arguments: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = refusal(capsys, "matrix", *arguments)
    for part in parts:
        assert part in sentence


def test_results_are_never_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "before").mkdir()
    (folder / "before" / "summary.json").touch()
    for command in ("run", "matrix"):
        assert "out=before is not an empty folder" in refusal(capsys, command, "out=before")


def test_a_folder_that_cannot_be_made_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "file").touch()
    assert f"{folder / 'file'} is a file" in refusal(capsys, "run", "out=file/below")
    if os.geteuid():  # root may write anywhere
        (folder / "locked").mkdir(mode=0o500)
        assert "not yours to write to" in refusal(capsys, "run", "out=locked/below")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["workload.rate_rps=fast"], ["workload.rate_rps is 'fast'", "a number from"]),
        (["model=llama3_70b", "tensor_parallel=1"], ["262.8 GiB", "choose a larger gpu"]),
        (["workload=trace", "workload.path=nowhere.csv"], ["nowhere.csv", "FRAGBENCH_TRACES"]),
        (["workload=trace", "workload.path=bad.csv"], ["line 3", "'abc' is not a whole number"]),
    ],
)
def test_what_only_a_run_can_find_is_a_sentence_too(
    arguments: list[str],
    parts: list[str],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FRAGBENCH_TRACES", raising=False)
    rows = "2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:50.9951690,abc,109\r\n"
    (folder / "bad.csv").write_text(TRACE_HEADER + rows, encoding="utf-8", newline="")
    sentence = refusal(capsys, "run", "device=cpu", *arguments)
    for part in parts:
        assert part in sentence


@pytest.mark.parametrize("arguments", [[], ["bench"], ["report", "nowhere"], ["report", "."]])
def test_a_wrong_command_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for command in COMMANDS:
        assert f"fragbench {command}" in shown


@pytest.mark.parametrize("command", ["run", "matrix"])
def test_help_names_every_group_option_and_setting(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "backend=paged", "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: fragbench {command} ")
    for group in (*DESCRIBED, *LISTED):
        for path in (CONF_FOLDER / group).glob("*.yaml"):
            assert path.stem in shown
    for setting in ("seed=0", "kv_budget=null", "jobs=null", "utilization=0.9"):
        assert setting in shown
    assert "*paged" in shown
    assert "*bucketed" not in shown


def test_help_knows_every_group() -> None:
    groups = {path.name for path in CONF_FOLDER.iterdir() if any(path.glob("*.yaml"))}
    assert groups == {group for group in (*DESCRIBED, *LISTED) if "/" not in group}


@pytest.mark.parametrize("command", ["run", "matrix"])
def test_cfg_shows_settings_and_runs_nothing(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--cfg", "job", "gpu=rtx4090", "seed=7"]) == 0
    shown = capsys.readouterr().out
    assert "seed: 7\n" in shown
    assert "name: rtx4090\n" in shown
    assert not list(folder.iterdir())


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("fragbench 0.")
