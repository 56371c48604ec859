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
from bench.report.differences import best
from bench.report.page import contents
from bench.report.rates import Slo, sweeps
from bench.report.repeats import gathered
from bench.report.results import load_runs
from bench.report.sections import OVERVIEW, each_workload, setting_html
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
    rows = contents(tmp_path, Slo()).rows
    text = setting_html(rows) + each_workload(rows, OVERVIEW)
    assert "Differences are from contiguous; 95 % intervals over 5 repeats" in text
    assert "<small>\N{MULTIPLICATION SIGN}3.0 (3.0 to 3.0)</small>" in text
    assert "10 runs of 2 settings" in text


def test_what_repeats_do_not_show_is_not_claimed(write_run: WriteRun, tmp_path: Path) -> None:
    """Of five seeds paged is twice faster and twice slower, and once much faster."""
    repeat(write_run, "contiguous", [1.0, 1.0, 1.0, 1.0, 1.0])
    repeat(write_run, "paged", [0.8, 1.2, 0.8, 1.2, 1.5])
    shown = contents(tmp_path, Slo())
    assert shown.finding is not None
    assert shown.finding.headline.startswith(
        "No difference in requests/s is shown between paged and contiguous, the most and the "
        "fewest of 2 runs: 1.10 times (0."
    )
    assert best(q.REQUESTS_PER_S, shown.rows) == set()


def test_a_headline_has_the_interval(write_run: WriteRun, tmp_path: Path) -> None:
    repeat(write_run, "contiguous", [1.0, 1.0, 1.0, 1.0, 1.0])
    repeat(write_run, "paged", [1.9, 2.1, 2.0, 1.9, 2.1])
    shown = contents(tmp_path, Slo())
    assert shown.finding is not None
    assert "paged completed 2.0 times (1.9 to 2.1) the requests/s" in shown.finding.headline
    assert best(q.REQUESTS_PER_S, shown.rows) == {"paged"}


def test_a_variant_that_did_not_complete_shows_nothing(write_run: WriteRun, tmp_path: Path) -> None:
    for backend, rate in (("contiguous", 1.0), ("paged", 2.0)):
        for change in ({}, {"cuda_free_us": 0.7}):
            broken = bool(change) and backend == "paged"
            parts = [f"backend={backend}", *(f"cost_factors.{k}={v}" for k, v in change.items())]
            folder = write_run(",".join(parts), backend, requests_per_s=rate, name=",".join(parts),
                               status="failed" if broken else "completed")  # fmt: skip
            configure(folder, cost_factors=change)
    (found,) = rankings(*split(gathered(load_runs(tmp_path)))).values()
    by_rate = next(each for each in found if each.quantity is q.REQUESTS_PER_S)
    assert by_rate.overturned == {("paged", "contiguous"): ["cuda_free_us -30 %"]}


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
    assert (ttft.order_said(), ttft.pairs) == ("contiguous = paged", 0)
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


def test_lines_of_one_backend_are_told_apart_and_what_failed_is_said(
    write_run: WriteRun, tmp_path: Path
) -> None:
    for conf in ("a:1,b:2", "c:3"):
        for rate in (1.0, 2.0):
            rate_run(write_run, "vmm", rate, 0)
            name = f"workload.rate_rps={rate:g},alloc_conf='{conf}'"
            (tmp_path / f"backend=vmm,workload.rate_rps={rate:g}").rename(tmp_path / name)
            configure(tmp_path / name, alloc_conf=conf)
            summary = json.loads((tmp_path / name / "summary.json").read_text())
            failed = {"status": "failed", "cause": "memory"} if (conf, rate) == ("c:3", 2.0) else {}
            facts = summary | {"name": name} | failed
            (tmp_path / name / "summary.json").write_text(json.dumps(facts))
    shown = contents(tmp_path, Slo())
    (sweep,) = shown.sweeps
    assert [line.label for line in sweep.lines] == [
        "vmm, alloc_conf='a:1,b:2'", "vmm, alloc_conf='c:3'"
    ]  # fmt: skip
    assert [len(line.points) for line in sweep.lines] == [2, 1]
    assert shown.finding is not None
    assert shown.finding.headline.endswith("; left out: 1 that did not complete.")


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


def test_one_run_is_compared_with_another_whatever_they_are_called(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("a/ours", "paged", name="backend=paged", requests_per_s=2.0)
    write_run("b/theirs", "vllm", name="backend=vllm", requests_per_s=1.0)
    found = compare(load_runs(tmp_path / "a"), load_runs(tmp_path / "b"), [q.REQUESTS_PER_S])
    (change,) = found.changes
    assert (change.name, change.before, change.after) == ("backend=paged", 2.0, 1.0)
    assert (found.only_before, found.only_after) == ((), ())
    write_run("b/more", "vmm", name="backend=vmm")
    found = compare(load_runs(tmp_path / "a"), load_runs(tmp_path / "b"), [q.REQUESTS_PER_S])
    assert found.changes == ()
    assert found.only_after == ("backend=vmm", "backend=vllm")


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


def test_a_run_that_no_longer_completes_is_a_regression(
    write_run: WriteRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Alone, and as one of several repeats; one that failed before is not held against it."""
    write_run("a/paged", name="backend=paged")
    write_run("b/paged", name="backend=paged", status="failed", cause="out of memory")
    before, after = str(tmp_path / "a"), str(tmp_path / "b")
    assert main([before, after, "fail_over=5%"]) == 1
    said = "WORSE: backend=paged completed before, and not after: out of memory"
    assert said in capsys.readouterr().out
    write_run("a/vmm", "vmm", name="backend=vmm")
    write_run("b/vmm", "vmm", name="backend=vmm")
    assert main([after, before, "fail_over=5%"]) == 0
    assert "backend=paged: not compared, it did not complete before" in capsys.readouterr().out


def test_worse_than_nothing_is_worse(write_run: WriteRun, tmp_path: Path) -> None:
    """Waste of 0 that becomes 30 % has no share, and is no less a regression; nothing below 0.05 %
    is a change."""
    write_run("a/paged", name="backend=paged", held_waste=0.0, requests_per_s=1.0)
    write_run("b/paged", name="backend=paged", held_waste=0.3, requests_per_s=0.9996)
    asked = [q.HELD_WASTE, q.REQUESTS_PER_S]
    found = compare(load_runs(tmp_path / "a"), load_runs(tmp_path / "b"), asked)
    assert [change.verdict for change in found.changes] == ["worse", "same"]
    assert [change.quantity for change in found.regressions(10.0)] == [q.HELD_WASTE]


def test_other_traffic_is_said(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("a/paged", workload="chat", name="backend=paged")
    write_run("b/paged", workload="code", name="backend=paged")
    found = compare(load_runs(tmp_path / "a"), load_runs(tmp_path / "b"), [q.REQUESTS_PER_S])
    assert next(iter(found.unlike.items())) == ("workload", ("chat", "code"))


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
