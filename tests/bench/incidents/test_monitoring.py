"""conf/monitoring: what its rules and dashboard ask for is what a server exports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from bench.experiment import CONF_FOLDER
from bench.metrics.tally import Tally
from bench.serve import engine_metrics
from bench.serve.engine_metrics import EngineCollector
from bench.serve.metrics import ServerMetrics

ALERTS = CONF_FOLDER / "monitoring" / "alerts.yml"
DASHBOARD = CONF_FOLDER / "monitoring" / "dashboard.json"
SERIES = Path(__file__).parent / "alerts.test.yml"
NAME = re.compile(r"\b(?:vllm|fragbench):\w+")


def all_stats() -> dict[str, Any]:
    """A value for everything that an engine may tell."""
    sizes = Tally()
    sizes.add(3 << 20)
    pairs = (*engine_metrics._VLLM_GAUGES.values(), *engine_metrics._VLLM_COUNTERS.values())
    keys = {key for key, _ in pairs} | {*engine_metrics._GAUGES, *engine_metrics._COUNTERS}
    failure = {"kind": "reserve_refused", "layer": "allocator", **sizes.as_dict()}
    tallies = {"tokens_of_steps": sizes.as_dict(), "allocation_failures_by_size": [failure]}
    return dict.fromkeys(keys, 1.0) | tallies


def exported() -> set[str]:
    """Names of series that /metrics can have."""
    page = ServerMetrics("m", {"max_model_len": 100}, EngineCollector("m", all_stats))
    names = set()
    for family in text_string_to_metric_families(generate_latest(page.registry).decode()):
        ends = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
        names |= {family.name + end for end in ends.get(family.type, [""])}
    return names


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def panels() -> Iterator[dict[str, Any]]:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return (panel for panel in dashboard["panels"] if panel["type"] != "row")


def test_the_three_alerts_ask_for_series_that_are_there() -> None:
    rules = alerts()
    assert len(rules) == 3
    for rule in rules:
        asked = set(NAME.findall(rule["expr"] + str(rule["annotations"])))
        assert asked, rule["alert"]
        assert asked <= exported(), rule["alert"]


def test_every_panel_asks_for_series_that_are_there() -> None:
    shown = set()
    for panel in panels():
        asked = set(NAME.findall(" ".join(target["expr"] for target in panel["targets"])))
        assert asked, panel["title"]
        assert asked <= exported(), panel["title"]
        shown |= asked
    gauges = {f"fragbench:{key}" for key in engine_metrics._GAUGES}
    left_out = {"fragbench:active_bytes", "fragbench:step_tokens"}
    assert gauges - shown == left_out


def test_panels_do_not_cover_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        rows = range(place["y"], place["y"] + place["h"])
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in rows}
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
@pytest.mark.parametrize("arguments", [("check", "rules", ALERTS), ("test", "rules", SERIES)])
def test_prometheus_reads_the_rules_and_fires_them(arguments: tuple[Any, ...]) -> None:
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_failures_are_counted_by_size_and_layer_from_the_start() -> None:
    """3 MiB is above 2 MiB and within 4; a failure of a kind that never was counts 0."""
    registry = CollectorRegistry()
    registry.register(EngineCollector("m", lambda: all_stats() | {"blocks_free": None}))
    text = generate_latest(registry).decode()
    assert "fragbench:blocks_free" not in text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    sizes = "fragbench:allocation_failure_bytes"
    counts = {
        f'{sizes}_bucket{{kind="reserve_refused",le="2.097152e+06"}}': "0.0",
        f'{sizes}_bucket{{kind="reserve_refused",le="4.194304e+06"}}': "1.0",
        f'{sizes}_bucket{{kind="reserve_refused",le="+Inf"}}': "1.0",
        f'{sizes}_sum{{kind="reserve_refused"}}': "3.145728e+06",
        f'{sizes}_count{{kind="extend_refused"}}': "0.0",
        'fragbench:allocation_failures_total{kind="reserve_refused",layer="allocator"}': "1.0",
        'fragbench:allocation_failures_total{kind="reserve_refused",layer="capacity"}': "0.0",
        'vllm:iteration_tokens_total_sum{engine="0",model_name="m"}': "3.145728e+06",
    }
    assert {name: lines[name] for name in counts} == counts
