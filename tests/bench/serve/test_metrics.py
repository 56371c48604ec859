"""/metrics: vLLM's names, and numbers that known traffic must give."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bench.experiment import CONF_FOLDER
from bench.serve.engine_metrics import kv_usage
from bench.serve.metrics import one_two_five
from tests.bench.serve.running import ON_CPU, VIRTUAL, Server, running
from tests.virtual_gpu import skip_without_virtual_gpu

MONITORING = CONF_FOLDER / "monitoring"

VLLM = {
    "num_requests_running": "gauge",
    "num_requests_waiting": "gauge",
    "kv_cache_usage_perc": "gauge",
    "num_preemptions": "counter",
    "prefix_cache_queries": "counter",
    "prefix_cache_hits": "counter",
    "prompt_tokens": "counter",
    "generation_tokens": "counter",
    "request_success": "counter",
    "request_prompt_tokens": "histogram",
    "request_generation_tokens": "histogram",
    "time_to_first_token_seconds": "histogram",
    "inter_token_latency_seconds": "histogram",
    "time_per_output_token_seconds": "histogram",
    "request_time_per_output_token_seconds": "histogram",
    "e2e_request_latency_seconds": "histogram",
    "request_decode_time_seconds": "histogram",
    "request_queue_time_seconds": "histogram",
    "request_prefill_time_seconds": "histogram",
    "request_inference_time_seconds": "histogram",
    "iteration_tokens_total": "histogram",
}
"""Names and types of vLLM's V1 engine (vllm/v1/metrics/loggers.py), those that are here."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    skip_without_virtual_gpu()
    out = tmp_path_factory.mktemp("serve") / "run"
    with running(out, "backend=paged_prefix", *VIRTUAL, "time_scale=100") as server:
        yield server


def test_names_and_types_are_vllms(server: Server) -> None:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    answered = server.request("GET", "/metrics", **accept)
    assert answered.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(answered.body.decode()))
    types = {family.name: family.type for family in families}
    assert {name: types.get(f"vllm:{name}") for name in VLLM} == VLLM
    assert {name.partition(":")[0] for name in types} == {"vllm", "fragbench"}
    assert b"\nvllm:request_success_total{" in answered.body
    models = {
        sample.labels.get("model_name")
        for family in families
        for sample in family.samples
        if family.name.startswith("vllm:")
    }
    assert models == {"llama3_8b"}


def test_tokens_and_latencies_are_counted(server: Server) -> None:
    """Three answers of 5 tokens have 4 gaps each; of two answers to a prompt, gaps are one."""
    names = [
        "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
        "vllm:time_to_first_token_seconds_count", "vllm:inter_token_latency_seconds_count",
        "vllm:time_per_output_token_seconds_count", "vllm:e2e_request_latency_seconds_count",
        "vllm:request_time_per_output_token_seconds_count",
        "vllm:request_prompt_tokens_sum", "vllm:request_generation_tokens_sum",
    ]  # fmt: skip
    before = [server.metric(name) for name in names]
    body = {"prompt": [[1, 2, 3], [4], [5] * 7], "max_tokens": 5}
    assert server.post("completions", body).status == 200
    server.post("completions", {"prompt": "abcd", "max_tokens": 2, "n": 2, "stream": True})
    now = [server.metric(name) for name in names]
    gained = [after - earlier for after, earlier in zip(now, before, strict=True)]
    assert gained == [15, 19, 4, 13, 13, 4, 4, 15, 17]


def test_the_time_to_the_first_token_is_in_the_whole(server: Server) -> None:
    server.post("completions", {"prompt": "a", "max_tokens": 30})
    parts = [
        server.metric(f"vllm:{name}_sum")
        for name in ("time_to_first_token_seconds", "request_decode_time_seconds")
    ]
    assert sum(parts) == pytest.approx(server.metric("vllm:e2e_request_latency_seconds_sum"))
    gaps_s = server.metric("vllm:inter_token_latency_seconds_sum")
    assert parts[1] == pytest.approx(gaps_s)


def test_a_request_is_queued_prefilled_and_decoded(server: Server) -> None:
    server.post("completions", {"prompt": "a", "max_tokens": 30})
    queue, prefill, decode, inference = (
        server.metric(f"vllm:request_{name}_time_seconds_sum")
        for name in ("queue", "prefill", "decode", "inference")
    )
    assert min(queue, prefill, decode) > 0
    assert prefill + decode == pytest.approx(inference)
    whole_s = server.metric("vllm:e2e_request_latency_seconds_sum")
    assert queue + inference == pytest.approx(whole_s)


@pytest.mark.parametrize(("stop", "reason"), [(None, "length"), ("<|", "stop")])
def test_an_answer_counts_by_why_it_ended(server: Server, stop: str | None, reason: str) -> None:
    name = "vllm:request_success_total"
    before = server.metric(name), server.metric(name, finished_reason=reason)
    server.post("completions", {"prompt": "ab", "max_tokens": 300, "stop": stop})
    assert (server.metric(name), server.metric(name, finished_reason=reason)) == (
        before[0] + 1,
        before[1] + 1,
    )


def test_errors_count_by_status(server: Server) -> None:
    before = server.metric("fragbench:http_errors_total", status="404")
    server.request("GET", "/nowhere")
    assert server.metric("fragbench:http_errors_total", status="404") == before + 1


def test_memory_and_the_allocator_are_those_of_the_engine(server: Server) -> None:
    budget = server.metric("fragbench:kv_budget_bytes")
    assert budget == 4 << 30
    body = {"prompt": [9] * 4000, "max_tokens": 4000, "stream": True}
    with server.begin(body):
        server.wait_until(lambda: server.metric("vllm:kv_cache_usage_perc") > 0)
    server.wait_until(lambda: server.metric("fragbench:held_bytes") == 0)
    server.wait_until(lambda: server.metric("fragbench:cached_bytes") > 0)
    reserved = server.metric("fragbench:reserved_bytes")
    assert budget < server.metric("fragbench:allocated_bytes") <= reserved
    assert server.metric("fragbench:segments") > 0
    assert server.metric("fragbench:driver_calls_total") > 0


def test_blocks_steps_and_failures_are_those_of_the_engine(server: Server) -> None:
    """4 GiB of 128 KiB a token, in blocks of 16 tokens, less the pool's null block and rest."""
    capacity = server.metric("fragbench:kv_capacity_tokens")
    assert capacity == (4 << 30) // (128 << 10)
    server.wait_until(lambda: server.metric("fragbench:held_bytes") == 0)
    server.wait_until(lambda: server.metric("fragbench:blocks_used") == 0)
    blocks = server.metric("fragbench:blocks_free") + server.metric("fragbench:blocks_cached")
    assert capacity // 16 - 64 < blocks < capacity // 16
    steps = server.metric("vllm:iteration_tokens_total_count")
    tokens = server.metric("vllm:iteration_tokens_total_sum")
    server.post("completions", {"prompt": "abcdefgh", "max_tokens": 3})
    server.wait_until(lambda: server.metric("vllm:iteration_tokens_total_sum") == tokens + 8 + 2)
    assert server.metric("vllm:iteration_tokens_total_count") == steps + 3
    assert server.metric("fragbench:token_budget") == 2048
    for layer in ("capacity", "kv_policy", "allocator", "workspace"):
        failures = server.metric("fragbench:allocation_failures_total", layer=layer)
        assert failures == 0
    assert server.metric("fragbench:worker_restarts_total") == 0


SELECTOR = re.compile(r"((?:vllm|fragbench):\w+)(?:\{([^}]*)\})?")


def asked() -> set[tuple[str, str]]:
    """Series that Prometheus's rules and the dashboard ask for, each with the labels that it has to
    have; instance and job are Prometheus's own."""
    (group,) = yaml.safe_load((MONITORING / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    dashboard = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    panels = (panel for panel in dashboard["panels"] if panel["type"] != "row")
    texts = [
        *(rule["expr"] + str(rule["annotations"]) for rule in group["rules"]),
        *(target["expr"] for panel in panels for target in panel["targets"]),
        *(each["expr"] for each in dashboard["annotations"]["list"]),
    ]
    return {
        (name, label)
        for text in texts
        for name, labels in SELECTOR.findall(text)
        for label in ["", *re.findall(r'(\w+="\w+")', labels)]
    }


def test_rules_and_dashboard_ask_for_series_that_are_there(server: Server) -> None:
    server.post("completions", {"prompt": "ab", "max_tokens": 3})
    server.wait_until(lambda: b"fragbench:reserved_bytes" in server.request("GET", "/metrics").body)
    lines = server.request("GET", "/metrics").body.decode().splitlines()
    missing = {
        (name, label)
        for name, label in asked()
        if not any(re.match(name + r"[ {]", line) and label in line for line in lines)
    }
    assert len(asked()) > 40
    assert missing == set()


def test_hits_count_in_tokens(server: Server) -> None:
    """Of 40 tokens that come again, two blocks of 16 are found; of a prompt the last is not."""
    names = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total")
    asked = server.metric("vllm:prompt_tokens_total")
    for again, hits in enumerate((0, 32), start=1):
        before = server.metric(names[1])
        server.post("completions", {"prompt": list(range(1000, 1040)), "max_tokens": 1})
        queried = asked + 40 * again
        server.wait_until(lambda queried=queried: server.metric(names[0]) == queried)  # type: ignore[misc]
        assert server.metric(names[1]) == before + hits


@pytest.mark.long
def test_what_there_is_not_has_no_line(tmp_path: Path) -> None:
    """A CPU has no caching allocator."""
    with running(tmp_path / "run", "backend=contiguous", *ON_CPU) as server:
        assert server.post("completions", {"prompt": "a"}).status == 200
        server.wait_until(lambda: b"fragbench:held_bytes" in server.request("GET", "/metrics").body)
        assert b"fragbench:reserved_bytes" not in server.request("GET", "/metrics").body


def test_usage_is_what_sequences_hold() -> None:
    assert kv_usage({"held_bytes": 3.0, "kv_budget_bytes": 12.0, "cached_bytes": 9.0}) == 0.25
    assert kv_usage({"held_bytes": None, "kv_budget_bytes": 12.0}) is None
    assert kv_usage({}) is None


def test_buckets_of_token_counts_end_at_the_longest() -> None:
    assert one_two_five(100) == [1, 2, 5, 10, 20, 50, 100]
    assert one_two_five(8192)[-3:] == [1000, 2000, 5000]
    assert one_two_five(1) == [1]
