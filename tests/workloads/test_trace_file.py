from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workloads.base import WorkloadError
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
    line = '{{"timestamp": {}, "input_length": 1, "output_length": 1}}\n'
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
    assert "line 3: its timestamp is 4.314579 s before that of the request above it" in message
    assert "sort the file" in message


def test_an_unknown_format_says_what_is_known(tmp_path: Path) -> None:
    message = refusal(write(tmp_path, "a,b,c\n1,2,3\n"))
    assert "the format is not known from its first line 'a,b,c'" in message
    assert "azure: " in message
    assert "mooncake: " in message


def test_a_format_that_the_file_is_not_names_the_first_line(tmp_path: Path) -> None:
    path = write(tmp_path, "\n".join(FIRST_LINES))
    assert "line 1: " in refusal(path, "mooncake")
    assert "must be one of auto, azure, mooncake" in refusal(path, "csv")


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


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    line = '{"timestamp": 0, "input_length": 1, "output_length": 1}\n'
    path = write(tmp_path, line * 50_000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in TraceFile(path, "auto").rows()) == 50_000
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 << 20  # the format is told from at most the first MiB


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
    read = list(TraceFile(str(public_trace("mooncake_conversation.jsonl")), "auto").rows())
    assert len(read) == 12_031
    assert sum(row.prompt_tokens for row in read) == 144_793_823
    assert sum(row.output_tokens for row in read) == 4_122_048
    assert read[-1].time_ns == 3_536_999 * 10**6
    assert all(len(row.prefix_ids) == -(-row.prompt_tokens // 512) for row in read)


def test_all_arrivals_of_the_code_trace_stay_distinct(public_trace: PublicTrace) -> None:
    rows = list(TraceFile(str(public_trace("azure_llm_2023_code.csv")), "auto").rows())
    ticks = [row.time_ns for row in rows]
    assert len(set(ticks)) == 8_819
    assert len({tick / 1e9 for tick in ticks}) == 8_819  # as seconds, too
    # cut to 10 ms of the wall clock, 2,690 would merge; the first is at .9799600 s
    assert 8_819 - len({(tick + 979_960_000) // 10**7 for tick in ticks}) == 2_690
