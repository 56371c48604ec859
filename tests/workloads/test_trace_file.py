from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads.base import WorkloadError
from workloads.formats.registry import names
from workloads.trace_file import TraceFile

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
FIRST_LINES = [HEADER, "2023-11-16 18:15:46.6805900,374,44", "2023-11-16 18:15:50.9951690,396,109"]
PublicTrace = Callable[[str], Path]


def write(folder: Path, content: str | bytes, name: str = "t.csv") -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def refusal(path: str | None, format_name: str = "auto") -> str:
    with pytest.raises(WorkloadError) as caught:
        TraceFile(path, format_name)
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


rows = st.lists(
    st.tuples(st.integers(0, 10**10), st.integers(1, 10**5), st.integers(1, 10**4)), min_size=1
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows, st.sampled_from(["\n", "\r\n", "\r"]), st.booleans(), st.booleans())
def test_any_line_end_reads_back_the_same(
    tmp_path: Path, drawn: list[tuple[int, int, int]], end: str, last_end: bool, bom: bool
) -> None:
    drawn.sort()
    lines = [HEADER]
    for ticks, prompt, output in drawn:
        minutes, rest = divmod(ticks, 600_000_000)
        clock = f"{minutes // 60:02d}:{minutes % 60:02d}:{rest // 10**7:02d}.{rest % 10**7:07d}"
        lines.append(f"2023-11-16 {clock},{prompt},{output}")
    text = ("\ufeff" if bom else "") + end.join(lines) + (end if last_end else "")
    trace = TraceFile(write(tmp_path, text), "auto")
    read = [(row.time_ns, row.prompt_tokens, row.output_tokens) for row in trace.rows()]
    assert read == [((ticks - drawn[0][0]) * 100, *lengths) for ticks, *lengths in drawn]
    assert trace.summary.requests == len(drawn)


def test_blank_lines_are_skipped_and_still_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "\n" + "\n \n\n".join(FIRST_LINES) + "\n\n")
    assert [row.line for row in TraceFile(path, "auto").rows()] == [5, 8]


def test_limit_and_duration_choose_in_the_traces_own_time(tmp_path: Path) -> None:
    line = '{{"timestamp": {}, "input_length": 1, "output_length": 1, "hash_ids": []}}\n'
    path = write(tmp_path, "".join(line.format(ms) for ms in (7000, 7500, 8000, 9000)))

    def times_ms(**chosen: object) -> list[int]:
        rows = TraceFile(path, "auto", **chosen).rows()  # type: ignore[arg-type]
        return [row.time_ns // 10**6 for row in rows]

    assert times_ms(limit=3) == [0, 500, 1000]
    assert times_ms(limit=9) == [0, 500, 1000, 2000]
    assert times_ms(duration_s=1) == [0, 500]
    assert times_ms(duration_s=1.001) == [0, 500, 1000]
    assert times_ms(duration_s=10, limit=1) == [0]


def test_lines_after_the_limit_are_not_read(tmp_path: Path) -> None:
    path = write(tmp_path, "\n".join([*FIRST_LINES, "rubbish"]))
    assert TraceFile(path, "auto", limit=2).summary.requests == 2
    assert "t.csv, line 4: 'rubbish' has 1 values" in refusal(path)


def test_a_malformed_line_is_found_before_anything_runs(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, "\r\n".join([*FIRST_LINES, "2023-11-16 19:00:00,x,1"])))
    expected = "t.csv, line 4, column ContextTokens: 'x' is not a whole number of tokens."
    assert message.endswith(expected)


def test_bytes_that_are_not_text_are_shown_not_crashed_on(tmp_path: Path) -> None:
    path = write(tmp_path, "\n".join(FIRST_LINES).encode() + b"\n\xff\xfe,1,1\n")
    assert "line 4, column TIMESTAMP" in refusal(path)


def test_time_that_goes_back_is_refused_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "\n".join([HEADER, FIRST_LINES[2], FIRST_LINES[1]]))
    message = refusal(path)
    assert (
        "line 3, column TIMESTAMP: its time is 4.314579 s before that of the request above it"
        in message
    )
    assert "sort the file" in message


def test_a_time_years_after_the_first_is_refused(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, "\n".join([*FIRST_LINES, "2123-11-16 18:15:46,1,1"])))
    assert (
        "s after that of the first request, 1e+08 s at most; correct or remove the line" in message
    )


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    assert "the format is not known from its first line 'a,b,c'" in refusal(
        write(tmp_path, "a,b,c\n1,2,3\n")
    )


def test_a_format_that_the_file_is_not_names_the_first_line(tmp_path: Path) -> None:
    path = write(tmp_path, "\n".join(FIRST_LINES))
    assert "line 1: " in refusal(path, "mooncake")
    assert "line 1: " in refusal(path, "vidur")
    assert "must be one of auto, azure, burstgpt" in refusal(path, "xml")


def test_bad_rows_are_skipped_where_that_is_asked(tmp_path: Path) -> None:
    lines = [FIRST_LINES[0], "x,1,1", FIRST_LINES[2], FIRST_LINES[1], "2023-11-16 19:00:00,3,4"]
    path = write(tmp_path, "\n".join(lines))
    trace = TraceFile(path, "auto", on_bad_row="skip")
    assert [row.line for row in trace.rows()] == [3, 5]
    facts = trace.facts()
    assert (facts["rows"], facts["requests"], facts["skipped_rows"]) == (4, 2, 2)
    assert facts["first_skipped_row"].startswith("line 2, column TIMESTAMP: 'x' is not a time")
    assert [row.line for row in trace.rows()] == [3, 5]  # a second reading is the same


def test_a_file_of_bad_rows_alone_says_what_is_wrong(tmp_path: Path) -> None:
    path = write(tmp_path, "\n".join([HEADER, "x,1,1", "y,1,1"]))
    with pytest.raises(WorkloadError, match=r"no requests; 2 of 2 rows cannot be read, .*: line 2"):
        TraceFile(path, "auto", on_bad_row="skip")


BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,GPT-4,472,0,472,API log\n6,GPT-4,30,3,33,API log\n"
)


def test_failed_requests_are_counted_whether_kept_or_dropped(tmp_path: Path) -> None:
    path = write(tmp_path, BURSTGPT)
    dropped, kept = (TraceFile(path, "auto", failed_requests=which) for which in ("drop", "keep"))
    assert [(row.time_ns, row.output_tokens) for row in dropped.rows()] == [(0, 3)]
    assert [(row.time_ns, row.output_tokens) for row in kept.rows()] == [(0, 1), (10**9, 3)]
    for trace, which in ((dropped, "dropped"), (kept, "kept")):
        facts = trace.facts()
        assert (facts["failed_requests"], facts["failed_requests_are"]) == (1, which)


def test_a_file_of_failed_requests_alone_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, BURSTGPT.rsplit("\n", 2)[0])
    assert "no requests; all 1 failed: set failed_requests=keep, or" in refusal(path)


def test_facts_say_what_was_read(tmp_path: Path) -> None:
    path = write(tmp_path, gzip.compress("\n".join(FIRST_LINES).encode()), "t.csv.gz")
    assert TraceFile(path, "auto").facts() == {
        "file": "t.csv.gz",
        "format": "azure",
        "compression": "gzip",
        "rows": 2,
        "requests": 2,
        "skipped_rows": 0,
        "first_skipped_row": None,
        "failed_requests": 0,
        "failed_requests_are": "dropped",
        "silent_conversations": 0,
        "tokens": "recorded",
        "shares_prefixes": False,
        "span_s": 4.314579,
        "rate_rps": pytest.approx(1 / 4.314579),
    }


def test_texts_have_no_times_and_estimated_tokens(tmp_path: Path) -> None:
    trace = TraceFile(write(tmp_path, '{"prompt": "a"}\n' * 3), "auto", output_tokens=5)
    facts = trace.facts()
    assert (facts["tokens"], facts["span_s"], facts["rate_rps"]) == ("estimated", None, None)
    assert not trace.has_times


def test_a_cut_archive_is_refused_before_anything_runs(tmp_path: Path) -> None:
    packed = gzip.compress("\n".join([*FIRST_LINES, *FIRST_LINES[2:] * 9_999]).encode())
    message = refusal(write(tmp_path, packed[:-20]))
    assert message.endswith("t.csv cannot be read: Truncated compressed stream.")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"on_bad_row": "ignore"},
            "workload.on_bad_row is 'ignore'; it must be fail or skip",
        ),
        ({"failed_requests": None}, "workload.failed_requests is null; it must be drop or keep"),
        ({"output_tokens": 0}, "workload.output_tokens is 0; it must be a whole number from 1 to"),
    ],
)
def test_a_choice_that_there_is_not_is_named(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        TraceFile(write(tmp_path, "\n".join(FIRST_LINES)), "auto", **changed)
    assert message in str(caught.value)


def test_a_duration_of_a_file_without_times_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "prompt_tokens,output_tokens\n1,2\n")
    with pytest.raises(WorkloadError, match=r"workload\.duration_s is 5; .* a csv file, which has"):
        TraceFile(path, "auto", duration_s=5)


@pytest.mark.parametrize("content", ["", "\n\n", HEADER, f"{HEADER}\r\n"])
def test_a_file_without_requests_is_refused(tmp_path: Path, content: str) -> None:
    message = refusal(write(tmp_path, content))
    assert "the file is empty" in message or "the trace has no requests" in message


def test_a_relative_path_is_looked_for_as_given_then_in_the_traces_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.delenv("FRAGBENCH_TRACES", raising=False)
    message = refusal("t.csv")
    assert str(here / "t.csv") in message
    assert "set FRAGBENCH_TRACES" in message
    monkeypatch.setenv("FRAGBENCH_TRACES", str(there))
    assert str(there / "t.csv") in refusal("t.csv")
    write(there, "\n".join(FIRST_LINES))
    assert TraceFile("t.csv", "auto").path == there / "t.csv"
    write(here, "\n".join(FIRST_LINES))
    assert TraceFile("t.csv", "auto").path == here / "t.csv"


@pytest.mark.parametrize("path", [None, "", 5])
def test_a_path_that_is_none_says_how_to_give_one(path: object) -> None:
    assert "workload.path=azure" in refusal(path)  # type: ignore[arg-type]


starts = st.sampled_from(
    [
        b"",
        b"\x1f\x8b",
        b"\x28\xb5\x2f\xfd",
        b"PAR1",
        b"[",
        b'{"prompt": "a"}\n',
        HEADER.encode() + b"\n",
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(starts, st.binary(max_size=40), st.sampled_from(names()), st.sampled_from(["fail", "skip"]))
def test_any_bytes_are_requests_or_one_sentence(
    tmp_path: Path, start: bytes, rest: bytes, format_name: str, on_bad_row: str
) -> None:
    path = write(tmp_path, start + rest)
    try:
        trace = TraceFile(path, format_name, on_bad_row=on_bad_row, output_tokens=1)
    except WorkloadError as error:
        message = str(error)
    else:
        message = "."
        assert len(list(trace.rows())) == trace.summary.requests > 0
    assert message.endswith(".")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "requests", "prompt_tokens", "output_tokens"),
    [
        ("azure_llm_2023_conv.csv", 19_366, 22_361_870, 4_088_665),
        ("azure_llm_2023_code.csv", 8_819, 18_059_974, 245_896),
    ],
)
def test_every_request_of_the_azure_traces_is_read(
    public_trace: PublicTrace, name: str, requests: int, prompt_tokens: int, output_tokens: int
) -> None:
    path = public_trace(name)
    records = [line.split(",") for line in path.read_text().split("\n")[1:] if line]
    assert sum(int(record[1]) for record in records) == prompt_tokens
    read = list(TraceFile(str(path), "auto").rows())
    assert len(read) == len(records) == requests
    assert sum(row.prompt_tokens for row in read) == prompt_tokens
    assert sum(row.output_tokens for row in read) == output_tokens


def test_every_request_of_the_mooncake_conversation_trace_is_read(
    public_trace: PublicTrace,
) -> None:
    trace = TraceFile(str(public_trace("mooncake_conversation.jsonl")), "auto")
    read = list(trace.rows())
    assert len(read) == 12_031
    assert len({row.time_ns for row in read}) == 1_180
    assert max(row.prompt_tokens for row in read) == 126_195
    assert sum(row.prompt_tokens for row in read) == 144_793_823
    assert sum(row.output_tokens for row in read) == 4_122_048
    assert read[-1].time_ns == 3_536_999 * 10**6
    assert all(len(row.prefix) == -(-row.prompt_tokens // 512) for row in read)


def test_every_request_of_the_mooncake_synthetic_trace_is_read(public_trace: PublicTrace) -> None:
    read = list(TraceFile(str(public_trace("mooncake_synthetic.jsonl")), "auto").rows())
    assert len(read) == 3_993
    assert all(len(row.prefix) == -(-row.prompt_tokens // 512) for row in read)


def test_all_arrivals_of_the_code_trace_stay_distinct(public_trace: PublicTrace) -> None:
    rows = list(TraceFile(str(public_trace("azure_llm_2023_code.csv")), "auto").rows())
    ticks = [row.time_ns for row in rows]
    assert len(set(ticks)) == 8_819
    assert len({tick / 1e9 for tick in ticks}) == 8_819  # as seconds, too
    # cut to 10 ms of the wall clock, 2,690 would merge; the first is at .9799600 s
    assert 8_819 - len({(tick + 979_960_000) // 10**7 for tick in ticks}) == 2_690
