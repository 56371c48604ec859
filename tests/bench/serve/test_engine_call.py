"""What one prompt's answers add to the metrics, from what the engine says of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from bench.serve.answer import Answer
from bench.serve.channel import Ended, Reason, Tokens
from bench.serve.engine_call import EngineCall
from bench.serve.engine_metrics import EngineCollector
from bench.serve.metrics import ServerMetrics
from bench.serve.tokenizer import ByteTokenizer


class Said:
    """A stream of which all was said before."""

    def __init__(self, messages: Iterable[Tokens | Ended]) -> None:
        self._messages = iter(messages)
        self.cancelled: list[Reason] = []

    async def next(self) -> Tokens | Ended:
        return next(self._messages)

    def cancel(self, reason: Reason) -> None:
        self.cancelled.append(reason)


class Heard:
    """A call that was read to its end, received at 100 s, and its metrics."""

    def __init__(
        self,
        *messages: Tokens | Ended,
        answers: int = 1,
        leaves_at_s: float | None = None,
        stop: str = "!",
    ) -> None:
        self.metrics = ServerMetrics("m", {"max_model_len": 100}, EngineCollector("m", dict))
        made = [
            Answer(index, ByteTokenizer(256).decoder(), 50, stops=[stop])
            for index in range(answers)
        ]
        self.stream = Said(messages)
        stream: Any = self.stream
        call = EngineCall(stream, made, 3, 100.0, self.metrics)
        if leaves_at_s is not None:
            call.cancel("disconnect", leaves_at_s)
        asyncio.run(call.run_out())

    def metric(self, name: str, **labels: str) -> float | None:
        if not name.startswith("fragbench:"):
            labels |= {"model_name": "m", "engine": "0"}
        return self.metrics.registry.get_sample_value(name, labels)


def ended(at_s: float, status: str = "completed", generated: int = 4) -> Ended:
    return Ended(7, at_s, status, None, generated, 0, admitted_s=100.5)


def tokens(*times_s: float, resumed_at_s: float | None = None) -> list[Tokens]:
    return [Tokens(7, at_s, [97], resumed=at_s == resumed_at_s) for at_s in times_s]


def test_a_gap_in_which_the_reader_was_behind_is_no_latency_of_a_token() -> None:
    heard = Heard(*tokens(101.0, 101.1, 109.1, 109.4, resumed_at_s=109.1), ended(109.4))
    assert heard.metric("vllm:inter_token_latency_seconds_count") == 2
    assert heard.metric("vllm:inter_token_latency_seconds_sum") == pytest.approx(0.1 + 0.3)
    tpot_s = heard.metric("vllm:request_time_per_output_token_seconds_sum")
    assert tpot_s == pytest.approx(0.4 / 2)
    assert heard.metric("vllm:request_decode_time_seconds_sum") == pytest.approx(8.4)


def test_the_times_of_a_request_are_vllms_intervals() -> None:
    """Queued until admitted, prefill until the first token, decode until the last."""
    heard = Heard(*tokens(101.0, 101.1, 101.2, 101.5), ended(101.5))
    expected = {"queue": 0.5, "prefill": 0.5, "decode": 0.5, "inference": 1.0}
    for name, seconds in expected.items():
        assert heard.metric(f"vllm:request_{name}_time_seconds_sum") == pytest.approx(seconds)
        assert heard.metric(f"vllm:request_{name}_time_seconds_count") == 1


def test_tokens_of_an_answer_that_has_stopped_are_not_generated() -> None:
    """The first answer stops at its second token, the other goes on."""
    said = [Tokens(7, 101.0 + step, list(ids)) for step, ids in enumerate((b"ab", b"!b", b"cb"))]
    heard = Heard(*said, ended(103.0, generated=3), answers=2)
    assert heard.metric("vllm:generation_tokens_total") == 2 + 2 + 1


def test_tokens_that_come_at_once_have_no_gap() -> None:
    heard = Heard(*tokens(103.0, 103.0, 103.0, 103.0), ended(103.0))
    assert heard.metric("vllm:inter_token_latency_seconds_count") == 0
    assert heard.metric("vllm:generation_tokens_total") == 4


@pytest.mark.parametrize(("status", "count"), [("completed", 0), ("cancelled", 1)])
def test_only_what_was_cancelled_was_freed_by_leaving(status: str, count: int) -> None:
    """A client may leave while the end of its answer is on its way."""
    heard = Heard(*tokens(101.0, 102.0), ended(102.25, status), leaves_at_s=102.0)
    name = "fragbench:cancel_to_free_seconds"
    assert heard.metric(f"{name}_count", reason="disconnect") == (count or None)
    if count:
        assert heard.metric(f"{name}_sum", reason="disconnect") == pytest.approx(0.25)
