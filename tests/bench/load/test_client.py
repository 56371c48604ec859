"""What becomes of a request: its times, and all the ways in which it ends."""

from __future__ import annotations

import numpy as np
import pytest

import bench.load.exchange
from bench.load.settings import RetrySettings
from tests.bench.load.clients import play, request
from tests.bench.load.conftest import Serve
from workloads.base import Client, Leave, Segment, Source

FAST = {"first_s": 0.05, "gap_s": 0.01}


def test_a_row_has_the_times_of_every_token(serve: Serve) -> None:
    """The server cannot be early: first token after 50 ms, then 10 ms apart."""
    (row,) = play(serve(**FAST).url, request(output_tokens=6))
    assert (row["status"], row["http_status"], row["counted_by"]) == ("completed", 200, "ids")
    assert row["generated_tokens"] == len(row["token_times_s"]) == 6
    assert row["first_token_s"] - row["sent_s"] >= 0.05 - 1e-3
    assert row["last_token_s"] - row["sent_s"] >= 0.05 + 5 * 0.01 - 1e-3
    assert row["first_token_s"] == row["token_times_s"][0]
    assert row["scheduled_s"] <= row["sent_s"] < row["last_token_s"] <= row["end_s"]


def test_tokens_of_one_chunk_came_together(serve: Serve) -> None:
    (row,) = play(serve(gap_s=0.5, tokens_a_chunk=3).url, request(output_tokens=6))
    times_s = np.array(row["token_times_s"])
    assert (np.diff(times_s) == 0).tolist() == [True, True, False, True, True]


def test_usage_counts_where_there_are_no_ids(serve: Serve) -> None:
    (row,) = play(serve(gap_s=0.5, ids=False, tokens_a_chunk=4).url, request(output_tokens=8))
    assert (row["counted_by"], row["generated_tokens"]) == ("usage", 8)
    assert len(set(row["token_times_s"])) == 2


def test_samples_are_counted_together(serve: Serve) -> None:
    server = serve(**FAST)
    (row,) = play(server.url, request(branches=3))
    assert (row["generated_tokens"], row["all_generated_tokens"]) == (5, 15)
    assert server.bodies[0]["n"] == 3


def test_a_later_turn_waits_and_says_what_was_answered(serve: Serve) -> None:
    """The scripted server answers 0, 1, 2, ...; its ids stand where the answer's were to be."""
    said = (Segment(Source.PROMPT, 0, 4), Segment(Source.OUTPUT, 0, 5))
    second = request(1, prompt_tokens=12, prefix=said, scheduled_s=0.2)
    server = serve(**FAST)
    first_row, second_row = play(server.url, request(0, next_turn=second))
    assert second_row["scheduled_s"] == pytest.approx(first_row["end_s"] + 0.2, abs=0.05)
    assert second_row["sent_s"] >= second_row["scheduled_s"] >= first_row["end_s"] + 0.2
    first, second_prompt = (body["prompt"] for body in server.bodies)
    assert second_prompt[:9] == [*first, 0, 1, 2, 3, 4]
    assert len(second_prompt) == 12


def test_a_later_turn_of_a_faster_engine_comes_sooner(serve: Serve) -> None:
    """A minute of the engine's is 0.2 s of its client's."""
    second = request(1, scheduled_s=60.0)
    rows = play(serve(**FAST).url, request(0, next_turn=second), time_scale=300)
    waited_s = rows[1]["scheduled_s"] - rows[0]["end_s"]
    assert 0.2 <= waited_s < 30


def test_the_servers_count_of_answers_is_noted(serve: Serve) -> None:
    rows = play(serve(**FAST).url, request(branches=3))
    assert (rows[0]["branches"], rows[0]["answers"]) == (3, 3)


def test_a_connection_is_used_again(serve: Serve) -> None:
    second = request(1, prompt_tokens=4)
    server = serve(**FAST)
    rows = play(server.url, request(0, next_turn=second))
    assert [row["new_connection"] for row in rows] == [True, False]
    assert server.connected == 1


@pytest.mark.parametrize("when", ["after", "at_next"])
def test_a_connection_that_was_closed_meanwhile_is_replaced(
    serve: Serve, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server's keep-alive runs out when it likes, be it while the next request is on its way."""
    monkeypatch.setattr(bench.load.exchange, "RESEND_WITHIN_S", 30)
    server = serve(**FAST, hangs_up=when)
    rows = play(server.url, request(0, next_turn=request(1, scheduled_s=0.1)))
    assert [row["status"] for row in rows] == ["completed", "completed"]
    assert [row["new_connection"] for row in rows] == [True, True]
    assert server.connected == 2
    assert [row["attempt"] for row in rows] == [0, 0]


def test_clients_leave_with_so_many_tokens(serve: Serve) -> None:
    server = serve(**FAST)
    client = Client(Leave("after_tokens", after_tokens=3))
    (row,) = play(server.url, request(output_tokens=100, client=client))
    assert (row["status"], row["left"], row["generated_tokens"]) == ("cancelled", "after_tokens", 3)
    assert row["left_s"] == row["end_s"] >= row["token_times_s"][2]
    assert len(server.wait_for("left", 1)) == 1


def test_clients_leave_after_some_time(serve: Serve) -> None:
    server = serve(**FAST)
    client = Client(Leave("after_s", after_s=0.2))
    (row,) = play(server.url, request(output_tokens=200, client=client))
    assert (row["status"], row["left"]) == ("cancelled", "after_s")
    assert row["left_s"] - row["sent_s"] >= 0.2
    assert 0 < row["generated_tokens"] < 200


def test_clients_leave_before_the_first_token(serve: Serve) -> None:
    server = serve(first_s=0.5)
    client = Client(Leave("before_first_token", after_s=0.05, after_tokens=1))
    (row,) = play(server.url, request(client=client))
    assert (row["status"], row["left"]) == ("cancelled", "before_first_token")
    assert (row["first_token_s"], row["generated_tokens"]) == (None, 0)


def test_who_has_the_whole_answer_did_not_leave(serve: Serve) -> None:
    client = Client(Leave("after_s", after_s=5.0))
    (row,) = play(serve(**FAST).url, request(client=client))
    assert (row["status"], row["left"]) == ("completed", None)


def test_a_client_gives_up(serve: Serve) -> None:
    (row,) = play(serve(first_s=5).url, request(), timeout_s=0.2)
    assert row["status"] == "failed"
    assert row["cause"] == "no end after 0.2 s (timeout_s)"
    assert row["end_s"] - row["sent_s"] >= 0.2


def test_slow_readers_leave_it_in_the_socket(serve: Serve) -> None:
    """20 chunks of 0.5 MB, all at once, at 20 tokens/s: the last is taken a second after the first,
    and the server cannot write more than its own buffer (at most 4 MB here) ahead of that."""
    server = serve(first_s=0.0, gap_s=0.0, padding=500_000)
    client = Client(tokens_per_s=20)
    (row,) = play(server.url, request(output_tokens=20, client=client))
    assert (row["status"], row["generated_tokens"]) == ("completed", 20)
    assert row["slow_reader"]
    assert row["end_s"] - row["sent_s"] >= 19 / 20
    asked, finished = server.wait_for("at_s", 2)
    assert finished["at_s"] - asked["at_s"] >= 0.4


def test_refusals_are_tried_again_when_the_server_says(serve: Serve) -> None:
    server = serve(**FAST, refusals=[429, 503], retry_after="0")
    retries = RetrySettings(limit=3, backoff_s=0.01)
    rows = play(server.url, request(), retries=retries)
    assert [row["status"] for row in rows] == ["rejected", "rejected", "completed"]
    assert [row["attempt"] for row in rows] == [0, 1, 2]
    assert [row["http_status"] for row in rows] == [429, 503, 200]
    assert rows[0]["cause"] == "HTTP 429: refused 0"
    assert len({row["scheduled_s"] for row in rows}) == 1


def test_retry_after_is_waited_for(serve: Serve) -> None:
    server = serve(**FAST, refusals=[429], retry_after="1")
    rows = play(server.url, request(), retries=RetrySettings(limit=1, backoff_s=0.0))
    assert rows[1]["sent_s"] - rows[0]["end_s"] >= 1


def test_retries_end(serve: Serve) -> None:
    server = serve(**FAST, refusals=[503] * 5)
    rows = play(server.url, request(), retries=RetrySettings(limit=2, backoff_s=0.01))
    assert [row["status"] for row in rows] == ["rejected"] * 3


@pytest.mark.parametrize(("status", "ended"), [(400, "rejected"), (500, "failed")])
def test_other_refusals_are_final(serve: Serve, status: int, ended: str) -> None:
    server = serve(**FAST, refusals=[status])
    (row,) = play(server.url, request(), retries=RetrySettings(limit=2, backoff_s=0.01))
    assert (row["status"], row["http_status"]) == (ended, status)


def test_a_refused_connection_is_tried_again() -> None:
    url = "http://127.0.0.1:1"  # nothing listens there
    rows = play(url, request(), retries=RetrySettings(limit=1, backoff_s=0.01))
    assert [row["cause"] for row in rows] == ["connection refused"] * 2
    assert rows[0]["sent_s"] is None


def test_a_stream_that_breaks_off_has_failed(serve: Serve) -> None:
    (row,) = play(serve(**FAST, bare_end=True).url, request())
    assert (row["status"], row["generated_tokens"]) == ("failed", 5)
    assert row["cause"] == "the stream ended before the answer did"


def test_a_stream_without_done_is_whole(serve: Serve) -> None:
    (row,) = play(serve(**FAST, done=False).url, request())
    assert row["status"] == "completed"


def test_an_error_in_mid_stream_has_failed(serve: Serve) -> None:
    (row,) = play(serve(**FAST, error_after=2).url, request())
    assert (row["status"], row["generated_tokens"]) == ("failed", 2)
    assert row["cause"] == "error in mid-stream: out of luck"


def test_many_at_once_have_a_connection_each(serve: Serve) -> None:
    """No pool's size is a limit: 300 are open before the first is answered."""
    server = serve(first_s=3)
    rows = play(server.url, *(request(number, 1) for number in range(300)))
    assert {row["status"] for row in rows} == {"completed"}
    assert max(row["sent_s"] for row in rows) < min(row["first_token_s"] for row in rows)
    assert server.connected == 300
