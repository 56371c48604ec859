"""Run folders are found and read in whatever state a run left them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.errors import SettingError
from bench.report.frames import thin
from bench.report.results import NO_SUMMARY, load_runs
from bench.report.timelines import memory_over_time

GIB = 1 << 30
WriteRun = Callable[..., Path]


def test_runs_are_found_at_any_depth_in_order_of_path(write_run: WriteRun, tmp_path: Path) -> None:
    for folder in ("b/deep/er", "a", "b/deep/aside"):
        write_run(folder)
    assert [run.folder for run in load_runs(tmp_path)] == ["a", "b/deep/aside", "b/deep/er"]


def test_the_folder_of_one_run_is_that_run(write_run: WriteRun) -> None:
    (run,) = load_runs(write_run("only"))
    assert (run.folder, run.backend, run.status) == (".", "paged", "completed")


def test_a_matrix_folder_with_a_config_of_its_own_is_no_run(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("cell/.hydra/not_a_run")
    write_run("cell2")
    (tmp_path / "config.yaml").write_text("seed: 0\n")
    assert [run.folder for run in load_runs(tmp_path)] == ["cell2"]


@pytest.mark.parametrize("make", [False, True], ids=["missing", "empty"])
def test_a_folder_without_runs_is_a_setting_error(tmp_path: Path, make: bool) -> None:
    folder = tmp_path / "folder"
    if make:
        folder.mkdir()
    with pytest.raises(SettingError, match="folder") as raised:
        load_runs(folder)
    assert "\n" not in str(raised.value)


def test_a_killed_run_is_incomplete_and_named_by_its_config(
    write_run: WriteRun, tmp_path: Path
) -> None:
    write_run("killed", "bucketed", omit_summary=True)
    (run,) = load_runs(tmp_path)
    assert (run.status, run.cause, run.backend) == ("incomplete", NO_SUMMARY, "bucketed")
    assert "summary.json is missing" in run.notes
    # The request file holds three completed and one failed; who else was sent is not known.
    assert run.request_counts == {"completed": 3, "failed": 1}


def test_a_backend_is_named_by_the_module_of_its_target(
    write_run: WriteRun, tmp_path: Path
) -> None:
    folder = write_run("killed", omit_summary=True)
    (folder / "config.yaml").write_text("backend:\n  _target_: backends.paged.Paged\n")
    assert load_runs(tmp_path)[0].backend == "paged"


def test_a_cut_part_and_a_gap_are_left_out_and_noted(write_run: WriteRun, tmp_path: Path) -> None:
    timeline = write_run("run") / "timeline"
    shutil.copy(timeline / "part-00000.parquet", timeline / "part-00004.parquet")
    cut = timeline / "part-00001.parquet"
    cut.write_bytes(cut.read_bytes()[:100])
    (run,) = load_runs(tmp_path)
    assert "timeline/part-00001.parquet is cut short and was left out" in run.notes
    assert "timeline: part(s) 2, 3 missing" in run.notes
    assert len(run.timeline.read(("time_s",), run.notes)) == 8  # two parts of four samples


def test_damage_inside_a_part_is_noted_when_it_is_read(write_run: WriteRun, tmp_path: Path) -> None:
    part = write_run("run") / "timeline" / "part-00000.parquet"
    content = bytearray(part.read_bytes())
    content[4:400] = b"\xff" * 396  # the first pages; the footer stays
    part.write_bytes(content)
    (run,) = load_runs(tmp_path)
    assert run.notes == []
    assert len(run.timeline.read(("time_s", "memory_bound"), run.notes)) == 4
    assert run.notes == ["timeline/part-00000.parquet is damaged and was left out"]


@pytest.mark.parametrize("kind", ["timeline", "unfilled", "requests"])
def test_a_run_without_parts_says_so(write_run: WriteRun, tmp_path: Path, kind: str) -> None:
    shutil.rmtree(write_run("run") / kind)
    (run,) = load_runs(tmp_path)
    assert run.notes == [f"{kind}: no part files"]
    assert memory_over_time(run).empty == (kind == "timeline")


def test_broken_texts_are_noted_not_raised(write_run: WriteRun, tmp_path: Path) -> None:
    folder = write_run("run")
    (folder / "summary.json").write_text('{"status": "comp')
    (folder / "config.yaml").write_text("a: [1, ")
    (folder / "environment.json").write_text("[]")
    (folder / "incidents.jsonl").write_text('{"kind": "refused"}\n{"kind": "ref')
    (run,) = load_runs(tmp_path)
    assert run.incidents == ({"kind": "refused"},)
    assert len(run.notes) == 4
    assert run.config_text == "a: [1, "


@pytest.mark.parametrize("value", [None, "1", True, float("nan"), float("inf")])
def test_what_is_no_finite_number_is_undefined(
    write_run: WriteRun, tmp_path: Path, value: object
) -> None:
    write_run("run", held_waste=value)
    assert load_runs(tmp_path)[0].number("held_waste") is None


def test_terms_over_time_add_up_to_the_budget(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("run")
    (run,) = load_runs(tmp_path)
    frame = memory_over_time(run)
    terms = ("token_states", "reservation", "internal", "undetermined", "rounding", "cached")
    total = sum(frame[f"{term}_bytes"] for term in terms) + frame["free_bytes"]
    assert (total == 8 * GIB).all()
    assert (frame["reservation_bytes"] == GIB).all()


def test_unfilled_bytes_without_a_split_are_undetermined(
    write_run: WriteRun, tmp_path: Path
) -> None:
    folder = write_run("run")
    (folder / "unfilled" / "part-00001.parquet").unlink()
    frame = memory_over_time(load_runs(tmp_path)[0])
    assert frame["undetermined_bytes"].tolist() == [0.0] * 4 + [4.0 * GIB] * 4
    assert frame["internal_bytes"].tolist() == [3.0 * GIB] * 4 + [0.0] * 4


def test_thinning_keeps_means_of_equal_spans(write_run: WriteRun, tmp_path: Path) -> None:
    write_run("run")
    frame = load_runs(tmp_path)[0].timeline.read(("time_s", "memory_bound"), [])
    # Samples at 0..7 s in two spans of 3.5 s: 0, 1, 2, 3 and 4, 5, 6, 7.
    thinned = thin(frame, points=2)
    assert thinned["time_s"].tolist() == [1.5, 5.5]
    assert thinned["memory_bound"].tolist() == [0.5, 0.5]
    assert thin(frame).equals(frame)


def test_the_log_tail_is_its_last_lines(write_run: WriteRun, tmp_path: Path) -> None:
    folder = write_run("run")
    assert load_runs(tmp_path)[0].log_tail(1) == "stopped"
    (folder / "run.log").unlink()
    assert load_runs(tmp_path)[0].log_tail() == ""


def test_numbers_are_read_from_the_summary(write_run: WriteRun, tmp_path: Path) -> None:
    folder = write_run("run")
    stored = json.loads((folder / "summary.json").read_text())
    (run,) = load_runs(tmp_path)
    assert run.number("ttft_s", "p90") == stored["ttft_s"]["p90"] == 2.0
    assert run.number("ttft_s", "p12") is None
    assert run.number("status", "p50") is None
