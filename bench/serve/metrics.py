"""/metrics: vLLM's names where the meaning is vLLM's, `fragbench:` before the rest.

vLLM's names and buckets are those of its V1 engine (vllm/v1/metrics/loggers.py). Latencies are
taken from the engine's own times of tokens. Gaps between tokens in which a sequence stood still
because its reader was behind are left out of what is a token's; those of a whole request have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from bench.serve.channel import Ended, Reason
from bench.serve.engine_metrics import EngineCollector

TTFT_BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0,
                7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)  # fmt: skip
ITL_BUCKETS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
               10.0, 20.0, 40.0, 80.0)  # fmt: skip
E2E_BUCKETS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
               120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)  # fmt: skip
FREE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LABELS = ("model_name", "engine")
_FINISHED = {"cancelled": "abort", "failed": "error", "unfinished": "abort"}


class Call(Protocol):
    """What is measured of a request: seconds of the monotonic clock."""

    @property
    def prompt_tokens(self) -> int: ...
    @property
    def received_s(self) -> float: ...
    @property
    def first_token_s(self) -> float | None: ...
    @property
    def last_token_s(self) -> float | None: ...
    @property
    def paused_s(self) -> float: ...
    @property
    def pauses(self) -> int: ...
    @property
    def cancelled_s(self) -> float | None: ...
    @property
    def reason(self) -> Reason | None: ...
    @property
    def ended(self) -> Ended | None: ...
    @property
    def answers(self) -> Sequence[Any]: ...


class ServerMetrics:
    """Everything that /metrics shows. `stats` is looked at when it is asked for."""

    def __init__(self, model_name: str, facts: Mapping[str, Any], stats: EngineCollector) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(stats)
        self._values = (model_name, "0")
        self._ttft = self._histogram("vllm:time_to_first_token_seconds", TTFT_BUCKETS,
                                     "From a request's arrival to its first token.")  # fmt: skip
        self._itl = self._histogram("vllm:inter_token_latency_seconds", ITL_BUCKETS,
                                    "Each gap between tokens of an answer.")  # fmt: skip
        self._older_itl = self._histogram("vllm:time_per_output_token_seconds", ITL_BUCKETS,
                                          "The same, by its older name.")  # fmt: skip
        self._tpot = self._histogram("vllm:request_time_per_output_token_seconds", ITL_BUCKETS,
                                     "Mean gap of a completed request.")  # fmt: skip
        self._e2e = self._histogram("vllm:e2e_request_latency_seconds", E2E_BUCKETS,
                                    "From arrival to end of a completed request.")  # fmt: skip
        self._decode = self._histogram("vllm:request_decode_time_seconds", E2E_BUCKETS,
                                       "From first to last token.")  # fmt: skip
        self._queue = self._histogram("vllm:request_queue_time_seconds", E2E_BUCKETS,
                                      "From arrival to admission.")  # fmt: skip
        self._prefill = self._histogram("vllm:request_prefill_time_seconds", E2E_BUCKETS,
                                        "From admission to the first token.")  # fmt: skip
        self._inference = self._histogram("vllm:request_inference_time_seconds", E2E_BUCKETS,
                                          "From admission to the last token.")  # fmt: skip
        longest = facts["max_model_len"]
        self._prompt_lengths = self._histogram(
            "vllm:request_prompt_tokens", one_two_five(longest), "Prompt tokens of a request."
        )
        self._answer_lengths = self._histogram(
            "vllm:request_generation_tokens", one_two_five(longest), "Tokens of its longest answer."
        )
        self._prompt_tokens = self._counter("vllm:prompt_tokens", "Prompt tokens prefilled.")
        self._generated = self._counter("vllm:generation_tokens", "Tokens of answers.")
        self._success = Counter(
            "vllm:request_success", "Requests that ended, by how.",
            (*_LABELS, "finished_reason"), registry=self.registry,
        )  # fmt: skip
        for reason in ("stop", "length", "abort", "error"):
            self._success.labels(*self._values, reason)
        self._free = Histogram(
            "fragbench:cancel_to_free_seconds",
            "From a client's leaving, a timeout or a shutdown to the request's memory being free.",
            ("reason",), registry=self.registry, buckets=FREE_BUCKETS,
        )  # fmt: skip
        self._ends = Counter(
            "fragbench:requests_ended", "Requests by status and by why they were cancelled.",
            ("status", "reason"), registry=self.registry,
        )  # fmt: skip
        self._refused = Counter(
            "fragbench:http_errors", "Responses that are errors, by HTTP status.",
            ("status",), registry=self.registry,
        )  # fmt: skip
        names = ("backend", "device", "time", "model")
        info = Gauge("fragbench:info", "What is served.", names, registry=self.registry)
        info.labels(*(str(facts.get(name)) for name in names)).set(1)

    def tokens_came(self, call: Call, at_s: float, tokens: int, resumed: bool) -> None:
        """A step gave `call` a token in `tokens` answers that had not ended; its times are still
        those of the step before. `resumed`: its reader kept it waiting since. Tokens that come at
        once (static batches) have no gap between them."""
        self._generated.inc(tokens)
        if call.last_token_s is None:
            self._ttft.observe(at_s - call.received_s)
            self._prompt_tokens.inc(call.prompt_tokens)
        else:
            gap_s = at_s - call.last_token_s
            if gap_s > 0 and not resumed:
                self._itl.observe(gap_s)
                self._older_itl.observe(gap_s)

    def call_ended(self, call: Call) -> None:
        """The engine holds no memory of `call` any more."""
        ended = call.ended
        assert ended is not None
        self._ends.labels(ended.status, call.reason or "").inc()
        if ended.status == "cancelled" and call.cancelled_s is not None:
            assert call.reason is not None
            self._free.labels(call.reason).observe(max(0.0, ended.at_s - call.cancelled_s))
        if ended.status == "completed":
            self._completed(call, ended)
        elif ended.status in _FINISHED:
            self._success.labels(*self._values, _FINISHED[ended.status]).inc()

    def _completed(self, call: Call, ended: Ended) -> None:
        stopped = all(answer.finish_reason == "stop" for answer in call.answers)
        self._success.labels(*self._values, "stop" if stopped else "length").inc()
        self._e2e.observe(ended.at_s - call.received_s)
        self._prompt_lengths.observe(call.prompt_tokens)
        self._answer_lengths.observe(ended.generated)
        if call.first_token_s is not None and call.last_token_s is not None:
            self._phases(call, ended, call.first_token_s, call.last_token_s)

    def _phases(self, call: Call, ended: Ended, first_s: float, last_s: float) -> None:
        self._decode.observe(last_s - first_s)
        gaps = ended.generated - 1 - call.pauses
        if gaps > 0:
            self._tpot.observe((last_s - first_s - call.paused_s) / gaps)
        if ended.admitted_s is not None:
            self._queue.observe(max(0.0, ended.admitted_s - call.received_s))
            self._prefill.observe(first_s - ended.admitted_s)
            self._inference.observe(last_s - ended.admitted_s)

    def refused(self, status: int) -> None:
        """An error was the answer."""
        self._refused.labels(str(status)).inc()

    def _histogram(self, name: str, buckets: Sequence[float], meaning: str) -> Histogram:
        made = Histogram(name, meaning, _LABELS, registry=self.registry, buckets=buckets)
        return made.labels(*self._values)

    def _counter(self, name: str, meaning: str) -> Counter:
        return Counter(name, meaning, _LABELS, registry=self.registry).labels(*self._values)


def one_two_five(most: int) -> list[int]:
    """1, 2, 5, 10, 20, ... up to `most`, vLLM's buckets of token counts."""
    buckets = [digit * 10**exponent for exponent in range(len(str(most))) for digit in (1, 2, 5)]
    return [bucket for bucket in buckets if bucket <= most]
