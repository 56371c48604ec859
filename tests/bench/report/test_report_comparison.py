"""`comparison.csv` and the terminal's table say what the summaries say."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from bench.report.comparison import comparison_table, print_comparison
from bench.report.differences import best
from bench.report.groups import comparable, labels, name_parts, wrapped
from bench.report.quantities import ALL, REQUESTS_PER_S, TTFT, format_number
from bench.report.results import load_runs
from tests.bench.report.conftest import SHARES

WriteRun = Callable[..., Path]

EXPECTED = {
    "name": "backend=paged,workload=mixed", "backend": "paged", "workload": "mixed",
    "model": "llama3_8b", "gpu": "a100_80gb", "device": "virtual", "time": "modelled",
    "status": "completed", "requests_sent": 100, "requests_completed": 100, "requests_failed": 0,
    "requests_per_s": 2.0, "output_tokens_per_s": 200.0, "total_tokens_per_s": 1000.0,
    "ttft_p50_s": 1.0, "ttft_p90_s": 2.0, "ttft_p99_s": 3.0, "tpot_p50_s": 0.02, "e2e_p99_s": 12.0,
    "normalized_latency_mean_s_per_token": 0.05, "memory_bound_time_share": 0.5,
    "token_states_share": 0.25, "reservation_share": 0.125, "internal_share": 0.375,
    "undetermined_share": 0.0, "rounding_share": 0.0625, "cached_share": 0.0,
    "external_share": 0.1875, "memory_bound_batch_mean_requests": 16.0, "held_waste_share": 0.6,
    "batch_mean_requests": 12.5, "batch_max_requests": 20, "preemptions": 3, "num_ooms": 1,
    "num_alloc_retries": 2, "peak_reserved_bytes": 24 << 30, "simulated_s": 50.0, "wall_s": 2.0,
}  # fmt: skip


def printed(folder: Path, width: int = 110) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_comparison(load_runs(folder), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_has_the_summarys_values(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("run")
    row = comparison_table(load_runs(tmp_path)).iloc[0]
    assert {name: row[name] for name in EXPECTED} == EXPECTED
    assert row["cause"] is None or pd.isna(row["cause"])


@pytest.mark.parametrize(
    ("width", "left_out"),
    [
        (130, None),
        (100, ("round", "inter")),
        (80, ("round", "inter", "reser", "exter", "cached")),
    ],
)
def test_a_narrow_terminal_has_fewer_columns_and_every_name_whole(
    write_run: WriteRun, tmp_path: Path, width: int, left_out: tuple[str, ...] | None
) -> None:
    cached = {"share_of_time": 0.5, **dict.fromkeys(SHARES, 0.125), "batch_mean": 16.0}
    for backend in ("paged_prefix", "vllm_prefix"):
        write_run(backend, backend, memory_bound=cached)
    text = printed(tmp_path, width)
    assert max(map(len, text.splitlines())) <= width
    assert "paged_prefix" in text
    assert "vllm_prefix" in text
    heads = {"reser", "inter", "round", "exter", "cached", "pre-", "OOMs"}
    assert {head for head in heads if head not in text} == set(left_out or ())
    said = f"Columns left out for want of width: {len(left_out)}" if left_out else "OOMs"
    assert said in text


def test_rows_follow_workload_and_backend(write_run: WriteRun, tmp_path: Path) -> None:
    for folder, backend, workload in (
        ("1", "unheard_of", "b"),
        ("2", "paged", "b"),
        ("3", "contiguous", "b"),
        ("4", "paged", "a"),
    ):
        write_run(folder, backend, workload)
    table = comparison_table(load_runs(tmp_path))
    assert table["folder"].tolist() == ["4", "3", "2", "1"]


def test_what_is_undefined_is_empty_in_the_csv(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("run", count=60, memory_bound=None, allocator=None, held_waste=None)
    text = comparison_table(load_runs(tmp_path)).to_csv(index=False)
    row = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False).iloc[0]
    undefined = {name for name, value in row.items() if value == ""}
    assert undefined == {
        "cause", "ttft_p99_s", "tpot_p99_s", "e2e_p99_s", "token_states_share", "cached_share",
        "reservation_share", "internal_share", "undetermined_share", "rounding_share",
        "external_share", "memory_bound_batch_mean_requests", "held_waste_share", "num_ooms",
        "num_alloc_retries", "peak_reserved_bytes", "sharing_saved_share", "prefix_hit_rate",
    }  # fmt: skip
    assert row["memory_bound_time_share"] == "0.0"  # a completed run: known, not undefined
    assert row["peak_reserved_bytes"] == ""


def test_a_run_that_did_not_complete_has_no_memory_bound_time_it_did_not_record(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("run", status="failed", cause="out of memory", memory_bound=None)
    row = comparison_table(load_runs(tmp_path)).iloc[0]
    assert row["cause"] == "out of memory"
    assert pd.isna(row["memory_bound_time_share"])


def test_columns_have_one_meaning_each() -> None:
    assert len({quantity.column for quantity in ALL}) == len(ALL)


def test_the_terminal_table_fits_110_columns(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("a", "contiguous_expandable", requests_per_s=1.25, count=19366)
    write_run("b", "paged", count=19366)
    lines = printed(tmp_path).splitlines()
    assert max(map(len, lines)) <= 110
    (row,) = (line.split() for line in lines if line.startswith("paged"))
    expected = "paged 19366/19366 2.00 1.00 3.00 20.0 12.5 50.0 25.0 12.5 37.5 6.2 18.8 3 1"
    assert row == expected.split()


def test_the_terminal_names_failures_and_leaves_markup_alone(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("run", "paged[red]", status="failed", cause="[bold]no[/bold] memory")
    text = printed(tmp_path)
    assert "[bold]no[/bold] memory" in text
    assert "paged[red]" in text.replace("\n", "")


def test_runs_of_different_traffic_or_failed_ones_are_not_compared(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("a", "contiguous", requests_per_s=1.0)
    write_run("b", "paged")
    write_run("c", "bucketed", gpu="h100_80gb")
    write_run("d", "paged_prefix", status="failed")
    other = write_run("e", "contiguous_expandable")
    (other / "config.yaml").write_text("workload: {name: mixed, rate: 9}\nseed: 0\n")
    groups = [[run.folder for run in group] for group in comparable(load_runs(tmp_path))]
    assert sorted(groups) == [["a", "b"], ["c"], ["e"]]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("paged", ["paged"]),
        ("backend=paged,seed=1", ["backend=paged", "seed=1"]),
        ("rate=1,alloc_conf='a:1,b:2',seed=0", ["rate=1", "alloc_conf='a:1,b:2'", "seed=0"]),
        ("sizes=[1,2],mine, really", ["sizes=[1,2],mine, really"]),
    ],
)
def test_a_values_own_commas_stay_in_it(name: str, parts: list[str]) -> None:
    assert name_parts(name) == parts


def test_the_best_is_marked_only_where_values_differ(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("a", "contiguous", requests_per_s=1.0)
    write_run("b", "paged", requests_per_s=3.0)
    write_run("c", "paged_prefix", requests_per_s=3.0)
    runs = load_runs(tmp_path)
    assert best(REQUESTS_PER_S, runs) == {"b", "c"}
    assert best(TTFT["p50"], runs) == set()


def test_labels_are_backends_until_two_share_one(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("a", "contiguous")
    write_run("b", "paged", name="backend=paged,workload=mixed,backend.block_size=16")
    write_run("c", "paged", name="backend=paged,workload=mixed,backend.block_size=32")
    write_run("d", "bucketed")
    write_run("e", "bucketed")
    expected = [
        "contiguous", "paged, block_size=16", "paged, block_size=32", "bucketed (d)", "bucketed (e)"
    ]  # fmt: skip
    assert labels(load_runs(tmp_path)) == expected


def test_long_names_wrap_at_marks_and_lose_nothing() -> None:
    assert wrapped("contiguous_expandable") == "contiguous_\nexpandable"
    assert wrapped("x" * 40, 20).replace("\n", "") == "x" * 40


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1234.5, "1,234"), (12.34, "12.3"), (1.234, "1.23"), (0.1234, "0.123")],
)
def test_numbers_have_three_significant_digits(value: float, text: str) -> None:
    assert format_number(value) == text


def test_a_run_in_which_nothing_completed_says_why(write_run: WriteRun, tmp_path: Path) -> None:
    """Causes that differ in numbers alone are one."""
    counts = {
        "sent": 3,
        "completed": 0,
        "failed": 0,
        "cancelled": 0,
        "rejected": 3,
        "unfinished": 0,
    }
    write_run("run", requests=counts)
    causes = [f"{n} tokens exceed max_model_len=64" for n in (666, 70, 81)]
    rows = pd.DataFrame({"status": ["rejected"] * 3, "cause": causes})
    rows.to_parquet(tmp_path / "run" / "requests" / "part-00000.parquet")
    said = printed(tmp_path)
    assert "rejected: 666 tokens exceed max_model_len=64 (3)" in " ".join(said.split())
