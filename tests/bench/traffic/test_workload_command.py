"""`fragbench workload NAME`: its figures, its files, and wrong input in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.cli import main
from bench.experiment import compose_cells
from bench.packaged import option_names
from bench.plugins import make
from bench.turns import turns
from tests.refusals import check_refused
from tests.virtual_gpu import skip_without_virtual_gpu

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BASE = "2023-11-16 18:15:"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def look_at(*arguments: str) -> dict[str, Any]:
    """workload.json of a preview."""
    assert main(["workload", *arguments, "out=here"]) == 0
    figures: dict[str, Any] = json.loads(Path("here/workload.json").read_text(encoding="utf-8"))
    return figures


def test_which_engine_would_run_it_does_not_matter() -> None:
    few = ("workload.num_requests=3", "workload.duration_s=null")
    assert look_at("batch", *few, "engine=vllm")["turns"] == 3


def trace(folder: Path, *rows: tuple[float, int, int]) -> str:
    """A setting of `workload` that replays rows of time in s, prompt and output."""
    path = folder / "small.csv"
    lines = [f"{BASE}{time_s:010.7f},{prompt},{output}\n" for time_s, prompt, output in rows]
    path.write_text(HEADER + "".join(lines), encoding="utf-8")
    return f"workload.path={path}"


def test_a_small_trace_is_counted_as_by_hand(folder: Path) -> None:
    rows = [(0.0, 100, 10), (1.0, 200, 10), (2.0, 7990, 10), (4.0, 8190, 10), (8.0, 50, 60)]
    figures = look_at("trace", trace(folder, *rows))
    assert (figures["turns"], figures["sessions"], figures["whole"]) == (5, 5, True)
    assert figures["rates"]["requests_per_s"] == 4 / 8
    assert figures["rates"]["prompt_tokens_per_s"] == pytest.approx(0.5 * 16530 / 5)
    assert figures["rates"]["output_tokens_per_s"] == pytest.approx(0.5 * 100 / 5)
    assert figures["times"]["last_s"] == 8.0
    assert figures["times"]["start_gap_cv"] is None  # of 4 gaps
    assert figures["lengths"]["prompt_tokens"]["p50"] == 200
    assert figures["lengths"]["prompt_tokens"]["max"] == 8190
    assert figures["lengths"]["total_tokens"]["p99"] is None  # of 5 samples
    limits = figures["limits"]
    # 8,000 of 8,192 tokens are near, 8,200 are too many.
    assert (limits["near_share"], limits["rejected_share"]) == (0.2, 0.2)
    assert figures["traces"]["workload"]["rows"] == 5
    assert figures["prefix"] == {"found_share": 0, "found_block_share": 0, "block_tokens": 16}
    assert figures["live"]["no_prefix_cache"]["kv_tokens"] > 0


def test_sessions_are_counted_with_their_later_turns() -> None:
    figures = look_at("chat", "workload.duration_s=60")
    section = {**_workload("chat"), "duration_s": 60.0}
    drawn = list(turns(make(section, "workload").requests(0)))
    assert figures["turns"] == len(drawn) > figures["sessions"]
    assert figures["times"]["answers"] == "no_prefix_cache"
    assert figures["prefix"]["found_share"] > figures["prefix"]["found_block_share"] > 0.5
    live = figures["live"]
    assert live["unbounded_prefix_cache"]["step_s"] < live["no_prefix_cache"]["step_s"]
    assert {path.name for path in Path("here").iterdir()} == {
        "workload.json", "lengths.png", "arrivals.png"
    }  # fmt: skip


def _workload(name: str) -> Any:
    """A workload's section, composed without the command under test."""
    cells, _ = compose_cells([f"workload={name}", "++device=cpu"], ["test"])
    return cells[0].config["workload"]


def test_kinds_have_their_shares_and_lengths() -> None:
    figures = look_at("mixed", "workload.num_requests=400")
    kinds = figures["kinds"]
    assert set(kinds) == {"chat", "rag", "code"}
    assert sum(kind["share"] for kind in kinds.values()) == pytest.approx(1)
    means = (kind["share"] * kind["prompt_tokens"]["mean"] for kind in kinds.values())
    assert sum(means) == pytest.approx(figures["lengths"]["prompt_tokens"]["mean"])


def test_beams_and_samples_are_counted_and_too_many_are_rejected() -> None:
    figures = look_at("beam", "workload.num_requests=50", "engine.max_num_seqs=3")
    assert figures["branches"] == {"samples": 0, "beams": 50, "mean_branches": 4.0}
    assert figures["limits"]["too_many_branches_share"] == 1
    assert figures["live"]["no_prefix_cache"]["why_null"] == "every request is rejected"


def test_a_closed_loop_has_no_rate_before_it_runs() -> None:
    figures = look_at("mixed", "workload/arrivals=closed_loop", "workload.num_requests=50")
    assert figures["users"] == 16
    assert set(figures["rates"].values()) == {None}
    assert set(figures["times"].values()) == {None}
    assert "closed loop" in figures["live"]["no_prefix_cache"]["why_null"]
    assert not Path("here/arrivals.png").exists()


def test_a_run_s_end_ends_the_preview(folder: Path) -> None:
    rows = [(float(second), 100, 10) for second in range(10)]
    figures = look_at("trace", trace(folder, *rows), "stop_after_s=4")
    assert (figures["turns"], figures["times"]["last_s"]) == (4, 3.0)


def test_too_much_load_is_null_and_said() -> None:
    figures = look_at("code", "workload.rate_rps=1000", "workload.num_requests=200")
    nothing = figures["live"]["no_prefix_cache"]
    assert nothing["kv_tokens"] is None
    assert nothing["requests"] is None
    assert "more than is served" in nothing["why_null"]


def test_a_set_kv_budget_is_told_from_a_bound() -> None:
    figures = look_at("code", "workload.num_requests=50", "kv_budget=1GiB")
    live = figures["live"]
    assert (live["kv_budget_bytes"], live["kv_budget_is"]) == (1 << 30, "set")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["choose one of", *option_names("workload")]),
        (["rate_rps=3"], ["its name comes first"]),
        (["chats"], ["workload=chats", "chat", "trace"]),
        (["chat", "workload.rate=3"], ["workload.rate"]),
        (["chat", "workload.rate_rps=-3"], ["workload.rate_rps is -3", "0.0001"]),
        (["chat", "seed=0,1"], ["seed=0,1", "several values"]),
        (["chat", "model=gpt"], ["model=gpt", "llama3_8b"]),
        (["trace"], ["workload.path is null"]),
        (["trace", "workload.path=no.csv"], ["no.csv", "no such file"]),
        (["mixed", "workload=chat"], ["workload=chat", "one workload, first"]),
        (["chat", "--nothing"], ["--nothing", "fragbench workload --help"]),
    ],
)
def test_wrong_input_is_one_sentence_and_writes_nothing(
    arguments: list[str], parts: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refused(["workload", *arguments], parts, capsys)
    assert list(folder.iterdir()) == []


def test_a_folder_with_something_in_it_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "full").mkdir()
    (folder / "full" / "mine.txt").touch()
    assert main(["workload", "chat", "out=full"]) == 2
    assert "out=full is not an empty folder" in capsys.readouterr().err
    assert [path.name for path in (folder / "full").iterdir()] == ["mine.txt"]


def test_settings_are_shown_instead(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert main(["workload", "chat", "seed=7", "--cfg", "job", "-p", "seed"]) == 0
    assert capsys.readouterr().out.strip() == "7"
    assert list(folder.iterdir()) == []


def test_a_preview_imports_no_torch() -> None:
    code = "import sys, bench.traffic.command; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.long
@pytest.mark.parametrize(("name", "backend"), [("mixed", "paged"), ("agent", "paged_prefix")])
def test_the_estimate_is_what_a_run_with_memory_to_spare_shows(name: str, backend: str) -> None:
    """15 %: the estimate is at mean work, and a run has a beginning and an end."""
    skip_without_virtual_gpu()
    live = look_at(name, f"backend={backend}")["live"]
    cache = "no_prefix_cache" if backend == "paged" else "unbounded_prefix_cache"
    assert main(["run", f"workload={name}", f"backend={backend}", "out=run"]) == 0
    summary = json.loads(Path("run/summary.json").read_text(encoding="utf-8"))
    assert summary["memory_bound"] is None or summary["memory_bound"]["share_of_time"] == 0
    assert live[cache]["requests"] == pytest.approx(summary["batch"]["mean"], rel=0.15)
    assert live[cache]["step_s"] == pytest.approx(summary["tpot_s"]["p50"], rel=0.15)
