"""`fragbench plan`: its answers by hand, its files and page, and wrong input in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.cli import main
from tests.refusals import check_refused
from tests.virtual_gpu import skip_without_virtual_gpu

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
CLASSIC = "experiment=classic_13b_24gb"
SMALL = ("model=llama3_8b", "gpu=a100_80gb")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of a test."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def no_virtual_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None can be built where its path could not be preloaded: budgets are upper bounds."""
    monkeypatch.setenv("FRAGBENCH_CACHE", str(tmp_path / "a:b"))


def plan(*arguments: str) -> dict[str, Any]:
    """plan.json of a plan."""
    assert main(["plan", *arguments, "out=here"]) == 0
    answers: dict[str, Any] = json.loads(Path("here/plan.json").read_text(encoding="utf-8"))
    return answers


def trace(folder: Path, *rows: tuple[int, int]) -> list[str]:
    """Settings that replay rows of prompt and output, a second apart."""
    path = folder / "small.csv"
    lines = [
        f"2023-11-16 18:{second // 60:02}:{second % 60:02}.0000000,{prompt},{output}\n"
        for second, (prompt, output) in enumerate(rows)
    ]
    path.write_text(HEADER + "".join(lines), encoding="utf-8")
    return ["workload=trace", f"workload.path={path}"]


def test_the_classic_case_asks_for_fp8(capsys: pytest.CaptureFixture[str]) -> None:
    """Exact, on the virtual GPU. Eight requests of 4,000 tokens, whose last is never read again:
    8 x 3,999 x 819,200 bytes are 24.41 GiB and fit no 24 GB card beside weights; in FP8, half."""
    skip_without_virtual_gpu()
    answers = plan(CLASSIC)
    assert answers["kv"]["bytes_per_token"] == 819_200
    budget, together = answers["budget"], answers["together"]
    assert (budget["how"], budget["refused"]) == ("exact", None)
    assert budget["live_tokens"] == budget["kv_budget_bytes"] // 819_200
    assert together["bytes"] == 8 * 3999 * 819_200
    assert together["fit"] is False
    fp16, fp8, shorter = answers["gains"]
    assert (fp8["setting"], fp8["live_tokens"] // fp16["live_tokens"]) == ("kv_dtype=fp8", 2)
    assert fp8["kv_budget_bytes"] == fp16["kv_budget_bytes"]
    assert [row["all_fit_at_once"] for row in (fp16, fp8, shorter)] == [False, True, False]
    assert shorter["setting"] == "max_model_len=4000"
    wide, _, small = answers["weights"]
    assert wide["refused"].startswith("model=llama2_13b needs 24.2 GiB")
    assert small["waste_share"] == wide["waste_share"]
    # Chunks of 2,048 tokens; whole prompts of 4,096 and up to 256 decodes.
    peaks = answers["headroom"]["prefills"]
    assert [peaks[p]["largest_step_tokens"] for p in ("whole", "chunked")] == [4352, 2048]
    assert peaks["whole"]["live_tokens"] < peaks["chunked"]["live_tokens"]
    assert answers["layouts"]["needed"] == {"sequences": 8, "how": "users of the closed loop"}
    assert answers["layouts"]["recommended"] == "either"
    assert answers["warnings"] == [
        "All 8 requests do not fit at once: at their longest they need 24.41 GiB."
    ]
    said = capsys.readouterr().out
    assert "Plan: llama2_13b on rtx4090" in said
    assert "they do not fit" in said
    assert "The layout does not decide: 4 at once each way; 8 are wanted." in said
    assert "enough with kv_dtype=fp8." in said


@pytest.mark.usefixtures("no_virtual_gpu")
def test_lengths_and_limits_are_counted_as_by_hand(folder: Path) -> None:
    rows = [(126, 5), (7990, 10), (8190, 10), (126, 5)]
    answers = plan(*SMALL, *trace(folder, *rows))
    limits = answers["limits"]
    assert (limits["near_share"], limits["too_long_share"], limits["never_fits_share"]) == (
        0.25, 0.25, 0
    )  # fmt: skip
    assert answers["longest_tokens"] == 8000
    # 5 steps of 126 to 130 tokens, twice, and 10 of 7,990 to 7,999.
    layouts = answers["layouts"]
    assert layouts["live_tokens_mean"] == (2 * 640 + 79_945) / 20
    each = {name: layout["held_tokens_mean"] for name, layout in layouts["each"].items()}
    assert each == {
        "reserved": 8192,
        "buckets": (2 * (3 * 128 + 2 * 256) + 10 * 8192) / 20,
        "blocks": (2 * (3 * 128 + 2 * 144) + 10 * 8000) / 20,
    }
    budget = answers["budget"]
    assert budget["how"] == "upper bounds"
    assert layouts["each"]["reserved"]["sequences"] == budget["live_tokens"] // 8192
    assert any("upper bounds" in line for line in answers["warnings"])
    assert any("25.0 % of the requests would be rejected" in line for line in answers["warnings"])
    # Of four requests there is no 99th percentile; the longest, 8,200, is beyond the model's 8,192.
    assert [row["setting"] for row in answers["gains"]] == ["as configured", "kv_dtype=fp8"]


@pytest.mark.usefixtures("no_virtual_gpu")
def test_a_shorter_max_model_len_serves_99_percent_or_all(folder: Path) -> None:
    rows = [*[(90, 10)] * 198, (900, 100), (1900, 100)]
    _, _, p99, everything = plan(*SMALL, *trace(folder, *rows))["gains"]
    assert (p99["setting"], p99["served_share"]) == ("max_model_len=100", 0.99)
    assert (everything["setting"], everything["served_share"]) == ("max_model_len=2000", 1)
    assert p99["sequences"]["reserved"] == p99["live_tokens"] // 100


@pytest.mark.usefixtures("no_virtual_gpu")
def test_an_endpoint_a_kind_reserves_what_that_kind_needs() -> None:
    short, long = "workload.kinds.batch", "workload.kinds.long"
    answers = plan(
        *SMALL, "workload=batch", "workload.num_requests=200", f"{short}.share=0.5",
        "+workload/kinds@workload.kinds.long=batch", f"{long}.share=0.5",
        f"{short}.prompt.tokens=100", f"{short}.output.tokens=28", f"{long}.prompt.tokens=4000",
        f"{long}.output.tokens=28",
    )  # fmt: skip
    parts = answers["parts"]
    kinds = parts["kinds"]
    assert {name: kind["max_model_len"] for name, kind in kinds.items()} == {
        "batch": 128, "long": 4028
    }  # fmt: skip
    assert sum(kind["share"] for kind in kinds.values()) == 1
    # All run as many steps: of 8,192 each before, half 128 and half 4,028 after.
    share = kinds["long"]["share"]
    assert parts["saved_share"]["reserved"] == pytest.approx(
        1 - (share * 4028 + (1 - share) * 128) / 8192
    )
    assert parts["saved_share"]["blocks"] == 0
    assert parts["weights_bytes_more"] == answers["budget"]["weights_bytes"]
    for kind in kinds.values():
        assert 0 < kind["max_live_tokens"] < kind["live_tokens"]


@pytest.mark.usefixtures("no_virtual_gpu")
def test_weights_that_do_not_fit_leave_nulls_and_a_warning() -> None:
    answers = plan("model=llama3_70b", "gpu=a100_80gb", "tensor_parallel=1", "workload=batch",
                   "workload.num_requests=20")  # fmt: skip
    assert answers["budget"]["live_tokens"] is None
    assert answers["layouts"]["recommended"] is None
    assert answers["admission"]["max_live_tokens"] is None
    assert answers["warnings"][0] == "There is no room for KV: the weights alone do not fit."


@pytest.mark.usefixtures("no_virtual_gpu")
def test_the_page_is_written_as_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a load beyond what is served, which is a warning."""
    answers = plan(*SMALL, "workload=batch", "workload.rate_rps=1000", "workload.num_requests=300")
    assert any("beyond what the GPU serves (modelled)" in line for line in answers["warnings"])
    assert answers["layouts"]["needed"]["sequences"] is None
    assert {path.name for path in Path("here").iterdir()} == {"plan.json", "plan.md"}
    page, said = Path("here/plan.md").read_text(encoding="utf-8"), capsys.readouterr().out
    assert page.startswith("# Plan: llama3_8b on a100_80gb, workload batch\n")
    titles = [line.lstrip("# ") for line in page.splitlines() if line.startswith("#")]
    assert len(titles) == 10
    for title in titles:
        assert title in said
    assert f"| KV budget | {answers['budget']['kv_budget_bytes'] / 2**30:.2f} |" in page
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["device=cpu"], ["device=cpu is not used", "leave it out"]),
        (["kv_dtype=fp32"], ["kv_dtype=fp32 is not planned for", "fp16"]),
        (["seed=0,1"], ["seed=0,1", "several values"]),
        (["workload.rate_rps=-3"], ["workload.rate_rps is -3", "0.0001"]),
        (["--nothing"], ["--nothing", "fragbench plan --help"]),
        (["engine=vllm"], ["engine=vllm divides the card by itself", "vllm.num_gpu_blocks"]),
    ],
)
@pytest.mark.usefixtures("no_virtual_gpu")
def test_wrong_input_is_one_sentence_and_writes_nothing(
    arguments: list[str], parts: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refused(["plan", *arguments], parts, capsys)
    assert list(folder.iterdir()) == []


def test_settings_are_shown_instead(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert main(["plan", "seed=7", "--cfg", "job", "-p", "seed"]) == 0
    assert capsys.readouterr().out.strip() == "7"
    assert list(folder.iterdir()) == []


def test_a_plan_imports_no_torch() -> None:
    code = "import sys, bench.plan.command; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
