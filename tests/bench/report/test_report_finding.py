"""The first sentence says what the numbers say, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.report.finding import finding
from bench.report.results import load_runs

WriteRun = Callable[..., Path]
PAGED_SHARES = {
    "share_of_time": 0.4, "token_states": 0.96, "reservation": 0.02, "internal": 0.02,
    "undetermined": 0.0, "rounding": 0.0, "cached": 0.0, "external": 0.0, "batch_mean": 30.0,
}  # fmt: skip


def test_one_comparison_is_one_sentence(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("a", "contiguous", requests_per_s=1.0)
    write_run("b", "paged", requests_per_s=2.1, memory_bound=PAGED_SHARES)
    found = finding(load_runs(tmp_path))
    assert found is not None
    assert found.details == ()
    assert found.headline == (
        "paged completed 2.1 times the requests/s of contiguous (mixed, modelled time); while "
        "memory-bound, 75 % of the KV budget of contiguous held no live token, against 4 % of that "
        "of paged."
    )


def test_cached_blocks_are_no_waste(write_run: WriteRun, tmp_path: Path) -> None:
    shares = PAGED_SHARES | {"token_states": 0.5, "cached": 0.46}
    write_run("a", "contiguous", requests_per_s=1.0)
    write_run("b", "paged_prefix", memory_bound=shares)
    found = finding(load_runs(tmp_path))
    assert found is not None
    assert "neither a live token nor a cached block, against 4 %" in found.headline


def test_a_run_that_never_was_memory_bound_has_no_share(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("a", "contiguous", requests_per_s=1.0)
    write_run("b", "paged", memory_bound=None)
    found = finding(load_runs(tmp_path))
    assert found is not None
    assert found.headline.endswith("held no live token; paged never was memory-bound.")


def test_equal_rates_are_called_equal(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("a", "contiguous", requests_per_s=2.0, memory_bound=None)
    write_run("b", "paged", requests_per_s=2.05, memory_bound=None)
    found = finding(load_runs(tmp_path))
    assert found is not None
    assert found.headline == (
        "The 2 runs completed requests at the same rate within 5 % (mixed, modelled time); "
        "none of them was memory-bound."
    )


def test_requests_that_were_not_completed_are_mentioned(
    write_run: WriteRun, tmp_path: Path
) -> None:
    requests = {"sent": 100, "completed": 64, "failed": 36}
    write_run("a", "contiguous", requests_per_s=1.0, requests=requests)
    write_run("b", "paged")
    found = finding(load_runs(tmp_path))
    assert found is not None
    expected = "paged completed 100 of 100 requests, contiguous 64 of 100 requests."
    assert found.headline.endswith(expected)


def test_what_clients_cancelled_alike_is_no_loss(write_run: WriteRun, tmp_path: Path) -> None:
    requests = {"sent": 100, "completed": 70, "cancelled": 30}
    write_run("a", "contiguous", requests_per_s=1.0, requests=requests)
    write_run("b", "paged", requests=requests)
    found = finding(load_runs(tmp_path))
    assert found is not None
    assert "requests;" not in found.headline
    write_run(
        "c", "vmm", requests_per_s=3.0, requests=requests | {"completed": 90, "cancelled": 10}
    )
    found = finding(load_runs(tmp_path))
    assert found is not None
    assert found.headline.endswith(
        "vmm completed 90 of 100 requests (10 were cancelled), contiguous 70 of 100 requests (30 "
        "were cancelled)."
    )


def test_the_same_loss_is_said_once(write_run: WriteRun, tmp_path: Path) -> None:
    requests = {"sent": 100, "completed": 98, "rejected": 2}
    write_run("a", "contiguous", requests_per_s=1.0, requests=requests)
    write_run("b", "paged", requests=requests)
    found = finding(load_runs(tmp_path))
    assert found is not None
    assert found.headline.endswith("; each completed 98 of 100 requests.")


def test_of_equally_slow_runs_the_simplest_is_named(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("a", "contiguous", requests_per_s=1.0001)
    write_run("b", "contiguous_expandable", requests_per_s=1.0)
    write_run("c", "paged")
    found = finding(load_runs(tmp_path))
    assert found is not None
    assert found.headline.startswith("paged completed 2.0 times the requests/s of contiguous (")


def test_a_backend_that_completed_nothing_gives_no_ratio(
    write_run: WriteRun, tmp_path: Path
) -> None:
    nothing = {"requests_per_s": 0.0, "output_tokens_per_s": 0.0, "total_tokens_per_s": 0.0}
    write_run("a", "contiguous", throughput=nothing)
    write_run("b", "paged")
    found = finding(load_runs(tmp_path))
    assert found is not None
    assert found.headline.startswith("paged completed 2 requests/s and contiguous none")


def test_several_workloads_have_a_headline_and_a_sentence_each(
    write_run: WriteRun, tmp_path: Path
) -> None:
    for workload, rate in (("chat", 1.5), ("code", 3.0)):
        write_run(f"{workload}/a", "contiguous", workload, requests_per_s=1.0)
        write_run(f"{workload}/b", "paged", workload, requests_per_s=rate)
    found = finding(load_runs(tmp_path))
    assert found is not None
    assert found.headline == (
        "paged completed the most requests/s in all 2 comparisons, 1.5 to 3.0 times those of the "
        "slowest (modelled time)."
    )
    assert [text.split(";")[0] for text in found.details] == [
        "paged completed 1.5 times the requests/s of contiguous (chat, modelled time)",
        "paged completed 3.0 times the requests/s of contiguous (code, modelled time)",
    ]


def test_no_winner_everywhere_is_no_winner(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("1", "contiguous", "chat", requests_per_s=1.0)
    write_run("2", "paged", "chat", requests_per_s=2.0)
    write_run("3", "contiguous", "code", requests_per_s=2.0)
    write_run("4", "paged", "code", requests_per_s=1.0)
    found = finding(load_runs(tmp_path))
    assert found is not None
    assert found.headline.startswith("No backend completed the most requests/s in every comparison")


def test_the_same_workload_on_two_gpus_is_told_apart(write_run: WriteRun, tmp_path: Path) -> None:
    for gpu in ("a100_80gb", "h100_80gb"):
        write_run(f"{gpu}/a", "contiguous", gpu=gpu, requests_per_s=1.0)
        write_run(f"{gpu}/b", "paged", gpu=gpu)
    found = finding(load_runs(tmp_path))
    assert found is not None
    assert "(mixed, a100_80gb, modelled time)" in found.details[0]
    assert "(mixed, h100_80gb, modelled time)" in found.details[1]


def test_nothing_to_compare_is_no_finding(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("a", "paged")
    write_run("b", "contiguous", status="failed", cause="killed")
    write_run("c", "contiguous", time="measured", device="cuda")
    assert finding(load_runs(tmp_path)) is None
