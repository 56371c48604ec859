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
from prometheus_client import CollectorRegistry, generate_latest

from bench.experiment import CONF_FOLDER
from bench.metrics.tally import Tally
from bench.serve import engine_metrics
from bench.serve.engine_metrics import EngineCollector

ALERTS = CONF_FOLDER / "monitoring" / "alerts.yml"
DASHBOARD = CONF_FOLDER / "monitoring" / "dashboard.json"
SERIES = Path(__file__).parent / "alerts.test.yml"
NAME = re.compile(r"\b(?:vllm|fragbench):\w+")


def panels() -> Iterator[dict[str, Any]]:
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return (panel for panel in dashboard["panels"] if panel["type"] != "row")


def test_every_gauge_has_a_panel() -> None:
    """tests/bench/serve/test_metrics.py asks a server for what panels and rules ask for."""
    shown = set(NAME.findall(DASHBOARD.read_text(encoding="utf-8")))
    gauges = {f"fragbench:{key}" for key in engine_metrics._GAUGES}
    assert gauges - shown == {"fragbench:active_bytes", "fragbench:step_tokens"}


def test_panels_are_as_grafana_wants_them() -> None:
    """Its JSON model (kinds/dashboard of Grafana's schema): ids and refIds are unique, data sources
    and instances come from variables, units are of its list."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    variables = {each["name"]: each["type"] for each in dashboard["templating"]["list"]}
    assert variables == {"datasource": "datasource", "instance": "query"}
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels():
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["description"]
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == list("ABCDEFG"[: len(letters)])
        assert all('{instance=~"$instance"' in target["expr"] for target in panel["targets"])
        defaults, options = panel["fieldConfig"]["defaults"], panel["options"]
        unit = defaults["unit"] if panel["type"] == "timeseries" else options["yAxis"]["unit"]
        assert unit in ("bytes", "short", "percentunit", "s", "reqps")


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
    sizes, registry = Tally(), CollectorRegistry()
    sizes.add(3 << 20)
    failure = {"kind": "reserve_refused", "layer": "allocator", **sizes.as_dict()}
    stats = {"tokens_of_steps": sizes.as_dict(), "allocation_failures_by_size": [failure]}
    registry.register(EngineCollector("m", lambda: stats | {"blocks_free": None}))
    text = generate_latest(registry).decode()
    assert "fragbench:blocks_free" not in text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    histogram = "fragbench:allocation_failure_bytes"
    counts = {
        f'{histogram}_bucket{{kind="reserve_refused",le="2.097152e+06"}}': "0.0",
        f'{histogram}_bucket{{kind="reserve_refused",le="4.194304e+06"}}': "1.0",
        f'{histogram}_bucket{{kind="reserve_refused",le="+Inf"}}': "1.0",
        f'{histogram}_sum{{kind="reserve_refused"}}': "3.145728e+06",
        f'{histogram}_count{{kind="extend_refused"}}': "0.0",
        'fragbench:allocation_failures_total{kind="reserve_refused",layer="allocator"}': "1.0",
        'fragbench:allocation_failures_total{kind="reserve_refused",layer="capacity"}': "0.0",
        'fragbench:allocation_failures_total{kind="extend_refused",layer="not_known"}': "0.0",
        'vllm:iteration_tokens_total_sum{engine="0",model_name="m"}': "3.145728e+06",
    }
    assert {name: lines[name] for name in counts} == counts
