"""Events come out of bytes as the specification says, however the bytes were cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.load.sse import Event, SseParser

CASES = {
    "one event": (b"data: a\n\n", [Event("a")]),
    "several in one read": (b"data: a\n\ndata: b\n\n", [Event("a"), Event("b")]),
    "no space after the colon": (b"data:a\n\n", [Event("a")]),
    "one space is taken off": (b"data:  a \n\n", [Event(" a ")]),
    "comments": (b": keep-alive\n\ndata: a\n: b\n\n", [Event("a")]),
    "crlf": (b"data: a\r\n\r\ndata: b\r\n\r\n", [Event("a"), Event("b")]),
    "cr": (b"data: a\r\rdata: b\r\r", [Event("a"), Event("b")]),
    "line ends mixed": (b"data: a\r\ndata: b\rdata: c\n\r\n", [Event("a\nb\nc")]),
    "two lf after a cr": (b"data: a\r\n\ndata: b\n\n", [Event("a"), Event("b")]),
    "many lines": (b"data: a\ndata\ndata: b\n\n", [Event("a\n\nb")]),
    "a type, for one event": (
        b"event: error\ndata: a\n\ndata: b\n\n",
        [Event("a", "error"), Event("b")],
    ),
    "an id stays": (b"id: 7\ndata: a\n\ndata: b\n\n", [Event("a", id="7"), Event("b", id="7")]),
    "an id with a null is none": (b"id: 7\0\ndata: a\n\n", [Event("a")]),
    "a type without data": (b"event: x\n\ndata: a\n\n", [Event("a")]),
    "empty data": (b"data\n\ndata:\n\n", [Event(""), Event("")]),
    "unknown fields": (b"foo: bar\nfoo\ndata: a\n\n", [Event("a")]),
    "a byte order mark": (b"\xef\xbb\xbfdata: a\n\n", [Event("a")]),
    "a second mark is text": (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
    "characters of many bytes": (
        "data: h\u00e9\U0001f600\n\n".encode(),
        [Event("h\u00e9\U0001f600")],
    ),
    "a wrong byte": (b"data: \xff\n\n", [Event("\ufffd")]),
    "an event cut off by the end": (b"data: a\n\ndata: b\n", [Event("a")]),
}


@pytest.mark.parametrize("name", CASES)
def test_events_of_a_stream(name: str) -> None:
    stream, events = CASES[name]
    assert SseParser().feed(stream) == events


@pytest.mark.parametrize("name", CASES)
def test_events_read_byte_by_byte(name: str) -> None:
    stream, events = CASES[name]
    parser = SseParser()
    assert [event for byte in stream for event in parser.feed(bytes([byte]))] == events


PIECES = st.sampled_from(
    [b"data: ", b"data:", b"event: x", b"id: 3", b":", b"\r", b"\n", b"\r\n", b"\n\n", b"a", b" ",
     "\U0001f600".encode(), b"\xef\xbb\xbf", b"retry: 10", b"\xff"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=30), st.data())
def test_any_split_gives_the_same_events(pieces: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(pieces)
    whole = SseParser().feed(stream)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    parser, found = SseParser(), []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += parser.feed(stream[start:stop])
    assert found == whole


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=20), min_size=1
    )
)
def test_what_was_written_is_read(lines: list[str]) -> None:
    written = "".join(f"data: {line}\n" for line in lines) + "\n"
    (event,) = SseParser().feed(written.encode())
    assert event.data == "\n".join(lines)


def test_an_event_comes_with_the_read_that_ends_it() -> None:
    """Also where that is the CR of a CRLF cut in two: waiting for the LF would add a gap."""
    parser = SseParser()
    assert parser.feed(b"data: a\r\n\r") == [Event("a")]
    assert parser.feed(b"\ndata: b\n") == []
    assert parser.feed(b"\n") == [Event("b")]


def test_the_reconnection_time() -> None:
    parser = SseParser()
    parser.feed(b"retry: 1500\nretry: soon\n")
    assert parser.retry_ms == 1500
    parser.feed(b"retry: " + b"9" * 5000 + b"\n")
    assert parser.retry_ms == 1500
