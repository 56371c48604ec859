"""Servers' gauges by their own names, out of excerpts of the pages that each server writes."""

from __future__ import annotations

from bench.load.scrape import read_metrics

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m {x}"} 3.0
vllm:num_requests_running{engine="1",model_name="m {x}"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:num_preemptions_total{engine="0",model_name="m"} 2.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.7e+09
"""
SGLANG = """\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m"} 162.0
sglang:num_queue_reqs{model_name="m"} 2826.0
sglang:token_usage{model_name="m"} 0.28
"""
TGI = """\
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 5
tgi_queue_size 0
"""
LLAMA_CPP = """\
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 1
llamacpp:requests_deferred 2
"""


def test_engines_behind_one_page_are_summed_and_shares_averaged() -> None:
    assert read_metrics(VLLM) == {
        "running": 7.0,
        "waiting": 1.0,
        "kv_usage": 0.5,
        "preemptions": 2.0,
    }


def test_names_of_other_servers() -> None:
    assert read_metrics(SGLANG) == {
        "running": 162.0, "waiting": 2826.0, "kv_usage": 0.28, "preemptions": None,
    }  # fmt: skip
    assert read_metrics(TGI) == {
        "running": 5.0, "waiting": 0.0, "kv_usage": None, "preemptions": None,
    }  # fmt: skip
    assert read_metrics(LLAMA_CPP) == {
        "running": 1.0, "waiting": 2.0, "kv_usage": None, "preemptions": None,
    }  # fmt: skip


def test_a_page_that_is_none() -> None:
    assert set(read_metrics("<html>not here</html>").values()) == {None}
    assert set(read_metrics("").values()) == {None}
