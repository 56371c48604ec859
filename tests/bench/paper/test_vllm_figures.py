"""The figures of an unmodified vLLM: what they read off runs, what they refuse, and what is kept of
them. Their runs: tests/vllm/vllm_figures.py."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.text import Text

from bench.cli import main
from bench.experiment import CONF_FOLDER
from bench.paper import vllm_beside, vllm_settings, vllm_utilization
from bench.paper.figure import Row
from bench.paper.vllm_beside import apart
from bench.paper.vllm_beside_cases import (
    APART,
    APART_SHARE,
    BOTH,
    CASES,
    ENGINES,
    FRAGBENCH,
    SHOWN,
    VLLM,
)
from bench.paper.vllm_runs import death
from bench.paper.vllm_settings_cases import BLOCKS, GRAPHS, PEAK, STUDIES, TTFT, WASTE, Study
from bench.paper.vllm_utilization import Case
from bench.paper.vllm_utilization_cases import BLOCKS as KV_BLOCKS
from bench.paper.vllm_utilization_cases import (
    COMPLETED,
    DIED,
    FOR_A_POINT,
    FREE,
    KEPT,
    SYSTEMS,
    TOKENS,
    UTILIZATIONS,
    WANTED,
)
from bench.report.results import Run, load_runs
from tests.bench.report.conftest import run_writer, write_parts

REFERENCE = Path(__file__).parents[3] / "results" / "reference"
MIB = 1 << 20
REFUSED = {
    "kind": "activation_refused", "ended_run": True, "wanted_bytes": 448 * MIB,
    "driver_free_bytes": 100 * MIB, "reserved_bytes": 2000 * MIB, "allocated_bytes": 1500 * MIB,
}  # fmt: skip


def run_of(root: Path, **replaced: Any) -> Run:
    """A run of the hand-made kind, with other things in its summary."""
    run_writer(root)("it", **replaced)
    (run,) = load_runs(root)
    return run


def dead_run(root: Path) -> Run:
    run = run_of(root, status="failed", cause="out of memory", steps=7)
    (run.path / "incidents.jsonl").write_text(json.dumps(REFUSED) + "\n", encoding="utf-8")
    return run


def value(rows: Sequence[Row], quantity: str, system: str) -> float | None:
    (row,) = [row for row in rows if (row.quantity, row.system) == (quantity, system)]
    return row.ours


def blocks(*used: float, start_s: float = 0.0) -> pd.DataFrame:
    """A sample a second."""
    times = [start_s + second for second in range(len(used))]
    return pd.DataFrame({"time_s": times, "blocks_used": used})


def test_what_ended_a_run_is_read_off_its_incident(tmp_path: Path) -> None:
    """500 of 2,000 MiB reserved were not allocated."""
    assert death(dead_run(tmp_path / "dead")) == (7, 448, 100, 500, 0.25)
    assert death(run_of(tmp_path / "done", steps=9)) is None
    assert death(None) is None


def test_the_incidents_of_a_run_that_is_named_for_its_settings_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = dead_run(tmp_path).path.rename(tmp_path / "default,utilization=0.97")
    assert main(["incident", str(folder)]) == 0
    assert "1 step could not allocate activations" in capsys.readouterr().out


def test_each_point_of_utilization_is_measured_from_the_one_before(tmp_path: Path) -> None:
    """From 0.85 to 0.9 are 5 points: 500 blocks and 10 tokens/s more are 100 and 2 a point. At 0.97
    a run died; what is not known of one point says nothing of the next."""
    system = SYSTEMS[0]
    low, high, dead, after = (Case(system, share) for share in (0.85, 0.9, 0.97, 0.98))
    runs = {
        low.name: run_of(tmp_path / "a", vllm={"num_gpu_blocks": 2000}, requests_per_s=1.0),
        high.name: run_of(tmp_path / "b", vllm={"num_gpu_blocks": 2500}, requests_per_s=1.1),
        dead.name: dead_run(tmp_path / "c"),
    }
    at_high, at_dead, at_after = (
        vllm_utilization._rows(runs, case) for case in (high, dead, after)
    )
    for quantity, bought in ((KV_BLOCKS, 100), (TOKENS, 2)):
        assert value(at_high, FOR_A_POINT.format(quantity), system.label) == pytest.approx(bought)
        assert value(at_after, FOR_A_POINT.format(quantity), system.label) is None
    assert value(at_high, COMPLETED, system.label) == 100
    assert DIED not in {row.quantity for row in at_high}
    assert value(at_dead, DIED, system.label) == 7
    assert all("failed: out of memory" in row.note for row in at_dead)


def test_a_drawing_tells_who_was_served_who_died_and_who_did_not_start(tmp_path: Path) -> None:
    served, dead, other = (Case(SYSTEMS[0], share) for share in UTILIZATIONS[:3])
    runs = {
        served.name: run_of(tmp_path / "a", vllm={"num_gpu_blocks": 2000}),
        dead.name: dead_run(tmp_path / "b"),
    }
    rows = [row for case in (served, dead, other) for row in vllm_utilization._rows(runs, case)]
    drawn = vllm_utilization.VllmUtilization().draw(rows)
    texts = [text.get_text() for text in drawn.findobj(Text) if isinstance(text, Text)]
    assert {"2,000\nblocks", "died,\nstep 7", "no start"} <= set(texts)


def test_blocks_apart_are_those_at_the_nearest_sample_of_ours() -> None:
    """Theirs come 0.2 s later: each has ours of its own second beside it."""
    ours, theirs = blocks(0, 10, 20, 40), blocks(0, 10, 25, 30, start_s=0.2)
    found = apart(ours, theirs)
    assert list(found["apart"]) == [0, 0, 5, -10]
    assert list(found["of_ours"]) == [0, 0, 0.25, -0.25]
    assert not len(apart(ours, blocks()))


def test_both_engines_and_their_difference_are_rows(tmp_path: Path) -> None:
    """Ours uses 100 blocks at each second; theirs 100, 99, 98: apart by 2, 2 % of ours."""
    case = CASES[0]
    runs = {}
    for engine, used in ((FRAGBENCH, (100, 100, 100)), (VLLM, (100, 99, 98))):
        run = run_of(tmp_path / engine, preemptions=5)
        shutil.rmtree(run.path / "timeline")
        write_parts(run.path / "timeline", blocks(*used))
        runs[vllm_beside._name(case, engine)] = load_runs(tmp_path / engine)[0]
    rows = vllm_beside._case_rows(runs, case)
    assert value(rows, APART, BOTH) == 2
    assert value(rows, APART_SHARE, BOTH) == pytest.approx(2)
    assert [value(rows, "preemptions", engine) for engine in ENGINES] == [5, 5]
    assert [value(rows, "prefix hits", engine) for engine in ENGINES] == [None, None]
    assert vllm_beside.VllmBeside().draw(rows).axes


def test_settings_are_drawn_with_what_is_known_of_them(tmp_path: Path) -> None:
    """One run of all, and nothing of the others."""
    study = STUDIES[-1]
    run = run_of(tmp_path, vllm={"num_gpu_blocks": 9000}, activation_peak_bytes=300 * MIB)
    rows = [
        row
        for each in STUDIES
        for name in each.values
        for row in vllm_settings._rows(
            run if each is study and name == "2048" else None, each, name
        )
    ]
    assert value([row for row in rows if row.panel == study.label], BLOCKS.quantity, "2048") == 9000
    assert sum(row.ours is not None for row in rows) == 2
    assert len(vllm_settings.VllmSettings().draw(rows).axes) == 8


def test_the_figure_and_its_preset_are_of_the_same_utilizations() -> None:
    preset = (CONF_FOLDER / "experiment" / "vllm_utilization.yaml").read_text(encoding="utf-8")
    assert f"utilization: {','.join(f'{share:g}' for share in UTILIZATIONS)}\n" in preset
    assert f"num_requests: {vllm_utilization.REQUESTS}\n" in preset


@pytest.mark.parametrize("name", ["vllm_utilization", "vllm_settings", "vllm_beside"])
@pytest.mark.parametrize("argument", ["experiment=demo", "engine=inrepo"])
def test_a_figure_of_vllm_keeps_its_engine(
    name: str, argument: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", name, argument, f"out={tmp_path / 'here'}"]) == 2
    assert f"{argument} is what this figure sets itself" in capsys.readouterr().err
    assert not (tmp_path / "here").exists()


def test_without_traces_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FRAGBENCH_TRACES", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["figure", "vllm_beside", "out=here"]) == 2
    said = capsys.readouterr().err
    assert "azure_llm_2023_conv.csv" in said
    assert "set FRAGBENCH_TRACES" in said
    assert not (tmp_path / "here").exists()


def kept(name: str) -> dict[tuple[str, str, str, str], float]:
    """Numbers of results/reference by panel, system, x and quantity; none for what is undefined."""
    with (REFERENCE / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return {
            (row["panel"], row["system"], row["x"], row["quantity"]): float(row["ours"])
            for row in csv.DictReader(file)
            if row["ours"]
        }


def test_what_is_kept_of_utilization_dies_where_it_is_said_to() -> None:
    """docs/figures.md. At 0.97 the default has more than it wants, and not in one piece."""
    rows = kept("vllm_utilization")
    default, expandable = (system.label for system in SYSTEMS)
    died = {key[1:3] for key in rows if key[3] == DIED}
    assert died == {(default, "0.97"), (default, "0.98"), (expandable, "0.98")}
    wanted, free, unused = (rows["", default, "0.97", name] for name in (WANTED, FREE, KEPT))
    assert free < wanted < free + unused
    started = {key[1:3] for key in rows if key[3] == KV_BLOCKS}
    assert not started & {(default, "0.99"), (expandable, "0.99")}


def test_what_is_kept_of_both_engines_is_the_same() -> None:
    rows = kept("vllm_beside")
    for case in CASES:
        assert rows[case.panel, BOTH, "", APART_SHARE] <= 2
        for shown in SHOWN:
            ours, theirs = (
                rows.get((case.panel, engine, "", shown.quantity)) for engine in ENGINES
            )
            assert ours == theirs, (case.panel, shown.quantity)
            of_prefixes = shown.keys[0] == "prefix_cache"
            assert (ours is None) == (of_prefixes and case.backend == "paged")


def test_what_is_kept_of_settings_says_what_each_costs() -> None:
    rows = kept("vllm_settings")

    def values(study: Study, quantity: str) -> list[float]:
        wanted = study.label, quantity
        found = [value for key, value in rows.items() if (key[0], key[3]) == wanted]
        assert len(found) == len(study.values)
        return found

    size, caching, mode, budget = STUDIES
    wastes = values(size, WASTE.quantity)
    assert wastes == sorted(wastes)
    peaks, left = values(budget, PEAK.quantity), values(budget, BLOCKS.quantity)
    assert (peaks, left) == (sorted(peaks), sorted(left, reverse=True))
    off, on = values(caching, TTFT.quantity)
    assert on < off
    eager, *graphs = values(mode, GRAPHS.quantity)
    assert eager == 0 < min(graphs)
