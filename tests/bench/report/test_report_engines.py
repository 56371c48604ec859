"""Engines side by side: which of them are compared, and what vLLM says of itself."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bench.report.distributions import turns_of
from bench.report.facts import same_again
from bench.report.finding import finding
from bench.report.groups import comparable, labels, memory_side
from bench.report.palette import BACKEND_COLOURS
from bench.report.results import Run, load_runs
from bench.report.vllm import vllm_html

WriteRun = Callable[..., Path]
BATCHING = {"prefill": None, "max_num_seqs": 256, "one_at_a_time": False, "cache": None}
OF_VLLM = {
    "version": "0.33.0", "mode": "graphs", "num_gpu_blocks": 9728, "graph_pool_bytes": 60 << 20,
    "graphs_estimate_bytes": 112 << 20, "graphs": 35, "start_s": 108.4,
}  # fmt: skip
WriteEngine = Callable[..., None]


@pytest.fixture
def write_engine(write_run: WriteRun) -> WriteEngine:
    """Writes a run of an engine whose batching settings may be changed, in a folder named as the
    backend unless told."""

    def write(
        backend: str,
        engine: str,
        mode: str = "compiled",
        folder: str | None = None,
        summary: dict[str, Any] | None = None,
        **batching: Any,
    ) -> None:
        parts = [f"backend={backend}", f"engine={engine}", f"vllm.mode={mode}"]
        given = {"name": ",".join(parts), "engine": engine} | (summary or {})
        path = write_run(folder or backend, backend, **given)
        config = {
            "backend": {"name": backend}, "workload": {"name": "mixed"}, "seed": 0,
            "engine": BATCHING | {"name": engine} | batching, "vllm": {"mode": mode},
        }  # fmt: skip
        (path / "config.yaml").write_text(yaml.safe_dump(config))

    return write


def compared(tmp_path: Path) -> list[list[str]]:
    return [[run.backend for run in group] for group in comparable(load_runs(tmp_path))]


def test_engines_that_batch_alike_are_compared_and_others_are_apart(
    write_engine: WriteEngine, tmp_path: Path
) -> None:
    write_engine("paged", "inrepo")
    write_engine("vllm", "vllm", mode="eager")
    write_engine("vllm_prefix", "vllm", max_num_seqs=64)
    alone = {"one_at_a_time": True, "prefill": "whole", "cache": "dynamic"}
    write_engine("transformers_dynamic", "transformers", **alone)
    assert compared(tmp_path) == [["transformers_dynamic"], ["paged", "vllm"], ["vllm_prefix"]]


def test_the_sentence_names_engines_by_their_backends(
    write_engine: WriteEngine, tmp_path: Path
) -> None:
    write_engine("paged", "inrepo")
    slower = {"requests_per_s": 1.0, "output_tokens_per_s": 100.0, "total_tokens_per_s": 500.0}
    write_engine("vllm", "vllm", summary={"throughput": slower})
    found = finding(load_runs(tmp_path))
    assert found is not None
    assert found.headline.startswith("paged completed 2.0 times the requests/s of vllm (mixed, mod")


def test_where_only_the_engine_sets_comparisons_apart_it_is_named(
    write_engine: WriteEngine, tmp_path: Path
) -> None:
    alone = {"one_at_a_time": True}
    for engine, batching in (("inrepo", {}), ("transformers", alone)):
        for backend in ("contiguous", "paged"):
            write_engine(backend, engine, folder=f"{engine}/{backend}", **batching)
    found = finding(load_runs(tmp_path))
    assert found is not None
    assert any("(mixed, engine=inrepo, modelled time)" in each for each in found.details)
    assert any("(mixed, engine=transformers, modelled time)" in each for each in found.details)


def test_vllms_settings_are_none_of_another_engines(
    write_engine: WriteEngine, tmp_path: Path
) -> None:
    write_engine("paged", "inrepo", mode="eager", folder="a")
    write_engine("paged", "inrepo", mode="graphs", folder="b")
    write_engine("vllm", "vllm", mode="eager", folder="c")
    write_engine("vllm", "vllm", mode="graphs", folder="d")
    ours, again, eager, graphs = runs = load_runs(tmp_path)
    assert same_again(ours, runs) == "the same 2 times"
    assert same_again(eager, runs) is None
    assert memory_side(ours) == memory_side(again)
    assert memory_side(eager) != memory_side(graphs)
    assert labels([eager, graphs]) == ["vllm, vllm.mode=eager", "vllm, vllm.mode=graphs"]


def test_a_run_from_before_a_setting_is_one_that_leaves_it_off(
    write_run: WriteRun, write_engine: WriteEngine, tmp_path: Path
) -> None:
    """Runs of the time when there was one engine had no section of vLLM, and no modules."""
    write_engine("vllm", "vllm")
    config = yaml.safe_load((tmp_path / "vllm/config.yaml").read_text())
    for folder, gpu in (("before", {}), ("off", {"modules_gib": 0.0}), ("on", {"modules_gib": 1})):
        path = write_run(folder, "paged", engine="inrepo", name="backend=paged")
        ours = {"name": "inrepo", "prefill": None, "max_num_seqs": 256}
        own = {"backend": {"name": "paged"}, "engine": ours, "gpu": gpu}
        own["vllm"] = {"mode": "compiled"} if gpu else {}
        (path / "config.yaml").write_text(yaml.safe_dump(config | own))
    assert [[run.folder for run in group] for group in comparable(load_runs(tmp_path))] == [
        ["before", "off", "vllm"],
        ["on"],
    ]


def cells(html: str) -> list[str]:
    """Texts of a table's cells, marks of notes left out."""
    found = re.findall(r"<td[^>]*>(.*?)</td>", html)
    return [re.sub(r"<sup>.*?</sup>|<[^>]*>", " ", cell).strip() for cell in found]


def of_vllm(write_engine: WriteEngine, tmp_path: Path, **summary: Any) -> list[Run]:
    counted = {"num_preemptions": 3, "prefix_cache_queries": 800, "prefix_cache_hits": 200}
    facts = {"vllm": OF_VLLM, "vllm_counted": counted, "activation_peak_bytes": 3 << 29}
    write_engine("paged", "inrepo")
    write_engine("vllm", "vllm", summary=facts | summary)
    return load_runs(tmp_path)


def test_what_vllm_counted_stands_beside_what_was_followed(
    write_engine: WriteEngine, tmp_path: Path
) -> None:
    cache = {"query_tokens": 800, "hit_tokens": 192, "hit_rate": 0.24, "evicted_blocks": None}
    html = vllm_html(of_vllm(write_engine, tmp_path, prefix_cache=cache))
    assert cells(html) == [
        "0.33.0", "graphs", "9,728", "1.50", "60 35 graphs; estimated 112", "108",
        "3 vLLM: 3", "800 vLLM: 800", "192 vLLM: 200",
    ]  # fmt: skip
    assert html.count('class="bad"') == 1, "what differs"


@pytest.mark.parametrize(("followed", "marks"), [(4, 0), (2, 1)])
def test_vllm_may_count_fewer_preemptions_and_no_more(
    write_engine: WriteEngine, tmp_path: Path, followed: int, marks: int
) -> None:
    html = vllm_html(of_vllm(write_engine, tmp_path, preemptions=followed))
    assert cells(html)[-3] == f"{followed} vLLM: 3"
    assert html.count('class="bad"') == marks


def test_without_a_prefix_cache_its_counts_are_undefined(
    write_engine: WriteEngine, tmp_path: Path
) -> None:
    html = vllm_html(of_vllm(write_engine, tmp_path))
    assert cells(html)[-2:] == ["\N{EN DASH}", "\N{EN DASH}"]
    assert "is undefined: <sup>1</sup> no prefix caching" in html


def test_a_report_without_vllm_says_nothing_of_it(
    write_engine: WriteEngine, tmp_path: Path
) -> None:
    write_engine("paged", "inrepo")
    assert vllm_html(load_runs(tmp_path)) == ""


def test_curves_in_one_place_are_drawn_in_turns() -> None:
    values, counts = np.array([1.0, 2.0, 4.0]), np.ones(3)
    same, alone = (values * 1.001, counts), (values * 3, counts)
    first, other, second = turns_of([(values, counts), alone, same])
    assert other is None
    assert first is not None
    assert second is not None
    (start, (on, off)), (later, dashes) = first, second
    assert (start, later) == (0, on)
    assert dashes == (on, off) == (off, on)


LINEAR_TO_CONE_LOSS = {
    # Machado, Oliveira and Fernandes 2009, table 1: severity 1.0, on linear RGB.
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
                    (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
                      (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
                    (0.004733, 0.691367, 0.303900)),
}  # fmt: skip


ENGINES = ("transformers_", "vllm")


def lab(colour: str, seen: Any) -> Any:
    """CIELAB of `#RRGGBB` under D65, as seen through a matrix on linear RGB."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ np.clip(np.array(seen) @ linear, 0, 1) / [0.9505, 1.0, 1.089]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eyes", [np.eye(3), *LINEAR_TO_CONE_LOSS.values()])
def test_engines_are_told_apart_with_any_eyes(eyes: Any) -> None:
    """15 in CIELAB is six times a just noticeable difference (2.3, Mahy et al. 1994)."""
    seen = {name: lab(colour, eyes) for name, colour in BACKEND_COLOURS.items()}
    for one, other in itertools.combinations(seen, 2):
        if one.startswith(ENGINES) or other.startswith(ENGINES):
            assert np.linalg.norm(seen[one] - seen[other]) > 15, (one, other)
