"""Repeats are one row, changed constants none; two sets of results are compared by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from bench.errors import SettingError
from bench.report import quantities as q
from bench.report.changes import compare
from bench.report.compare_command import main
from bench.report.page import contents, write_report
from bench.report.rates import Slo, sweeps
from bench.report.repeats import gathered
from bench.report.results import load_runs
from bench.report.sensitivity import rankings, split

WriteRun = Callable[..., Path]


def configure(folder: Path, **settings: Any) -> None:
    """Adds to a run's settings, and gives its summary their seed."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | settings))
    summary = json.loads((folder / "summary.json").read_text())
    summary["seed"] = settings.get("seed", 0)
    (folder / "summary.json").write_text(json.dumps(summary))


def repeat(write_run: WriteRun, backend: str, rates: list[float], root: str = "") -> None:
    """A run of `backend` for each requests/s, with seeds from 0 up."""
    for seed, rate in enumerate(rates):
        name = f"backend={backend},seed={seed}"
        folder = write_run(f"{root}{backend}/seed={seed}", backend, requests_per_s=rate, name=name)
        configure(folder, seed=seed)


def test_repeats_are_one_row_with_their_mean(write_run: WriteRun, tmp_path: Path) -> None:
    repeat(write_run, "paged", [1.0, 2.0, 3.0, 4.0, 5.0])
    (run,) = gathered(load_runs(tmp_path))
    found = q.REQUESTS_PER_S.estimate(run)
    assert found is not None
    assert (run.name, run.seeds, run.folder) == ("backend=paged", (0, 1, 2, 3, 4), "paged")
    assert (found.value, found.repeats) == (3.0, 5)
    assert found.low is not None
    assert found.high is not None
    assert 1.0 <= found.low < 2.5 < 3.5 < found.high <= 5.0
    assert run.request_counts["sent"] == 500
    assert q.REQUESTS["sent"].read(run) == 100


def test_a_number_that_one_repeat_lacks_is_undefined(write_run: WriteRun, tmp_path: Path) -> None:
    repeat(write_run, "paged", [1.0, 2.0])
    configure(write_run("paged/seed=2", name="backend=paged,seed=2", memory_bound=None), seed=2)
    (run,) = gathered(load_runs(tmp_path))
    assert q.SHARES["token_states"].read(run) is None
    assert q.BOUND_TIME.read(run) == pytest.approx(2 * 0.5 / 3)


def test_a_repeat_that_failed_keeps_the_row_from_being_compared(
    write_run: WriteRun, tmp_path: Path
) -> None:
    repeat(write_run, "paged", [1.0, 2.0])
    bad = write_run("paged/seed=2", name="backend=paged,seed=2", status="failed", cause="memory")
    configure(bad, seed=2)
    (run,) = gathered(load_runs(tmp_path))
    assert not run.completed
    assert run.cause == "1 of 3 repeats did not complete: memory"


def test_the_same_seed_twice_is_no_repeat(write_run: WriteRun, tmp_path: Path) -> None:
    for folder in ("first", "second"):
        configure(write_run(folder, name="backend=paged"), seed=3)
    assert len(gathered(load_runs(tmp_path))) == 2


def test_the_page_says_what_the_differences_are_from(write_run: WriteRun, tmp_path: Path) -> None:
    repeat(write_run, "contiguous", [1.0, 1.1, 0.9, 1.0, 1.05])
    repeat(write_run, "paged", [3.0, 3.3, 2.7, 3.0, 3.15])
    page, _ = write_report(tmp_path)
    text = page.read_text(encoding="utf-8")
    assert "Differences are from contiguous; 95 % intervals over 5 repeats" in text
    assert "<small>\N{MULTIPLICATION SIGN}3.0 (3.0 to 3.0)</small>" in text
    assert "10 runs of 2 settings" in text


def test_rankings_that_a_constant_overturns_are_not_settled(
    write_run: WriteRun, tmp_path: Path
) -> None:
    """Malloc at +30 % puts paged behind; at -30 % it leads, and under what is not its own."""
    for backend, change, rate in [
        ("contiguous", {}, 1.0), ("contiguous", {"cuda_malloc_us": 1.3}, 1.0),
        ("contiguous", {"cuda_malloc_us": 0.7}, 1.0), ("contiguous", {"cuda_free_us": 0.7}, 1.1),
        ("paged", {}, 1.2), ("paged", {"cuda_malloc_us": 1.3}, 0.9),
        ("paged", {"cuda_malloc_us": 0.7}, 1.3),
    ]:  # fmt: skip
        parts = [f"backend={backend}", *(f"cost_factors.{k}={v}" for k, v in change.items())]
        folder = write_run(",".join(parts), backend, requests_per_s=rate, name=",".join(parts))
        configure(folder, cost_factors=change)
    base, variants = split(gathered(load_runs(tmp_path)))
    assert [run.backend for run in base] == ["contiguous", "paged"]
    (found,) = rankings(base, variants).values()
    by_rate = next(each for each in found if each.quantity is q.REQUESTS_PER_S)
    assert by_rate.order_said() == "paged > contiguous"
    assert by_rate.changes == 3
    assert by_rate.overturned == {("paged", "contiguous"): ["cuda_malloc_us +30 %"]}
    ttft = next(each for each in found if each.quantity is q.TTFT["p50"])
    assert ttft.order_said() == "contiguous = paged"
    assert not ttft.overturned


def rate_run(write_run: WriteRun, backend: str, rate: float, late: int) -> None:
    """100 requests in 99 / rate seconds, of which so many had their first token after 3 s, and one
    took 0.5 s a token."""
    name = f"backend={backend},workload.rate_rps={rate:g}"
    folder = write_run(name, backend, name=name, simulated_s=100 / rate)
    configure(folder, workload={"name": "mixed", "rate_rps": rate})
    sent = pd.Series(range(100)) / rate
    first = sent + pd.Series([3.0] * late + [1.0] * (100 - late))
    slow = pd.Series([0.1] * 99 + [0.5])
    rows = {"status": "completed", "cause": None, "generated_tokens": 11, "sent_s": sent,
            "first_token_s": first, "last_token_s": first + 10 * slow}  # fmt: skip
    pd.DataFrame(rows).to_parquet(folder / "requests" / "part-00000.parquet")


def test_a_sweep_of_rates_says_what_each_backend_holds(write_run: WriteRun, tmp_path: Path) -> None:
    """One in a hundred always misses TPOT: with 10 late ones 89 % meet the objective."""
    for backend, late in (("contiguous", [0, 10, 60]), ("paged", [0, 9, 9])):
        for rate, count in zip((1.0, 2.0, 4.0), late, strict=True):
            rate_run(write_run, backend, rate, count)
    (sweep,) = sweeps(load_runs(tmp_path), Slo())
    contiguous, paged = sweep.lines
    assert [round(point.offered, 6) for point in paged.points] == [1.0, 2.0, 4.0]
    assert [point.share for point in contiguous.points] == [0.99, 0.89, 0.39]
    assert [point.goodput for point in paged.points] == pytest.approx([0.99, 1.8, 3.6])
    assert (contiguous.knee_said(), contiguous.missed) == ("1", 2.0)
    assert paged.knee_said() == "4 and more"
    said = contents(tmp_path, Slo()).finding
    assert said is not None
    assert said.headline.startswith("mixed, modelled time: highest rate served with first token")
    assert said.headline.endswith(
        "paged 4 and more requests/s; contiguous 1; at 4 requests/s 75 % of the KV budget of "
        "contiguous held no live token while memory-bound."
    )
    (strict,) = sweeps(load_runs(tmp_path), Slo(attained=1.0))
    assert strict.lines[0].knee_said() == "below 1"


def test_requests_that_were_still_in_time_when_the_run_ended_count_for_neither_side(
    write_run: WriteRun, tmp_path: Path
) -> None:
    """Of 100 sent 80 met it, 10 were still in time at the end, and 10 waited too long: 80 of 90."""
    rows = {
        "status": ["completed"] * 80 + ["unfinished"] * 20,
        "cause": None,
        "generated_tokens": [2] * 80 + [0] * 15 + [1] * 5,
        "sent_s": [float(i) for i in range(100)],
        "first_token_s": [i + 1.0 for i in range(80)]
        + [None] * 15 + [i + 1.0 for i in range(95, 100)],
        "last_token_s": [i + 1.1 for i in range(80)] + [None] * 20,
        "end_s": [i + 1.1 for i in range(80)] + [i + 3.0 for i in range(80, 90)]
        + [i + 1.5 for i in range(90, 95)] + [i + 9.0 for i in range(95, 100)],
    }  # fmt: skip
    for rate in (1.0, 2.0):
        rate_run(write_run, "paged", rate, 0)
    for folder in tmp_path.iterdir():
        pd.DataFrame(rows).to_parquet(folder / "requests" / "part-00000.parquet")
    (sweep,) = sweeps(load_runs(tmp_path), Slo())
    assert [point.share for point in sweep.lines[0].points] == pytest.approx([80 / 90, 80 / 90])


def test_two_sets_are_compared_by_name(write_run: WriteRun, tmp_path: Path) -> None:
    repeat(write_run, "paged", [1.0, 2.0, 3.0, 4.0, 5.0], "a/")
    repeat(write_run, "paged", [0.9, 1.8, 2.7, 3.6, 4.5], "b/")
    configure(write_run("a/old", "vmm", name="backend=vmm"))
    found = compare(load_runs(tmp_path / "a"), load_runs(tmp_path / "b"), [q.REQUESTS_PER_S])
    (change,) = found.changes
    assert change.share is not None
    assert (change.before, change.verdict) == (3.0, "worse")
    assert change.share.value == pytest.approx(-0.1)
    assert change.repeated
    assert found.only_before == ("backend=vmm",)
    assert found.regressions(0.05) == [change]
    assert found.regressions(0.15) == []


def test_the_exit_code_of_compare_is_for_ci(
    write_run: WriteRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repeat(write_run, "paged", [1.0], "a/")
    repeat(write_run, "paged", [0.8], "b/")
    before, after = str(tmp_path / "a"), str(tmp_path / "b")
    assert main([before, after, "fail_over=5%"]) == 1
    assert "WORSE: backend=paged: requests/s -20 % (not repeated 5 times" in capsys.readouterr().out
    assert main([before, after, "fail_over=25%", f"out={tmp_path / 'moved.csv'}"]) == 0
    assert main([before, before, "fail_over=0"]) == 0
    assert "are the same" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "moved.csv").set_index("quantity")
    assert table.loc["requests_per_s", "change"] == pytest.approx(-0.2)
    assert table.loc["requests_per_s", "verdict"] == "worse"
    assert table.loc["ttft_p50_s", "verdict"] == "same"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a"], "give two folders"),
        (["a", "a", "fail_over=many"], "fail_over=many is no share"),
        (["a", "a", "quantities=speed"], "speed is none of requests_per_s"),
        (["a", "a", "out=no/such/file.csv"], "no/such is no folder"),
        (["a", "elsewhere"], "elsewhere is not a folder"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(
    write_run: WriteRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str],
    said: str,
) -> None:  # fmt: skip
    write_run("a")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingError, match=said):
        main(arguments)
