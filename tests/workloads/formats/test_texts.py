from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from workloads.formats import json_list
from workloads.formats.base import MalformedLineError, Tally, TraceRow

Read = Callable[..., list[TraceRow]]
SEVEN, THREE = "seven tokens are 25 bytes", "1234567890"
TALK = {"conversations": [{"from": "human", "value": SEVEN}, {"from": "gpt", "value": THREE}]}


def lengths(rows: list[TraceRow]) -> list[tuple[int, int]]:
    return [(row.prompt_tokens, row.output_tokens) for row in rows]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([TALK]),
        "\n[\n" + json.dumps(TALK) + "\n]",
        json.dumps(TALK),
        json.dumps(TALK) + "\n\n" + json.dumps({"conversations": []}),
        json.dumps({"conversation": [{"content": SEVEN}, {"content": THREE}, {"content": "x"}]}),
        json.dumps({"prompt": SEVEN, "output_tokens": 3}),
        json.dumps({"prompt": SEVEN, "output_len": 3}),
        json.dumps({"prompt": "counted", "prompt_tokens": 7, "output_tokens": "3"}),
    ],
)
def test_texts_are_estimated_at_4_bytes_a_token(read: Read, text: str) -> None:
    assert lengths(read(text)) == [(7, 3)]


def test_bytes_are_those_of_utf8(read: Read) -> None:
    assert lengths(read(json.dumps({"prompt": "é" * 100, "output_tokens": 1}))) == [(50, 1)]
    assert lengths(read('{"prompt": "\\ud800", "output_tokens": 1}')) == [(1, 1)]  # no text at all


@pytest.mark.parametrize("messages", [[], TALK["conversations"][:1], [{"value": ""}] * 2])
def test_a_conversation_without_question_and_answer_is_no_request(
    read: Read, messages: object
) -> None:
    tally = Tally()
    assert read(json.dumps([{"conversations": messages}, TALK]), tally=tally) == [
        TraceRow(1, 0, 7, 3)
    ]
    assert (tally.rows, tally.skipped) == (2, 0)


def test_an_output_that_the_file_does_not_say_is_the_settings(read: Read) -> None:
    text = '{"prompt": "1234"}\n{"prompt": "12345", "output_tokens": 9}'
    assert lengths(read(text, tally=Tally(output_tokens=256))) == [(1, 256), (2, 9)]
    with pytest.raises(MalformedLineError, match=r"line 1, column output_tokens or output_len"):
        read(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[\n\n{}]", "line 3, column conversations: {} is not a list of messages"),
        ('[\n{"conversations": [1, 2]}]', "line 2, column value: 1 is not a text"),
        ('[{"conversations": []},\n\n3]', "line 3, column conversations: 3 is not a list"),
        ('[\n{"conversations": []}\n{}]', "line 3: '{}]' is neither a comma nor the end"),
        ('[{"conversations": []},\n{"conv', "line 2: '{\"conv' does not start a whole JSON value"),
        ('[{"conversations": []}', "line 1: '' is neither a comma nor the end of the list"),
        ('{"conversations": []}\n[3]', r"line 2: '\[3\]' is not a JSON object"),
        ('{"prompt": "a", "output_tokens": 0}', "column output_tokens: 0 is not from 1"),
        ('{"prompt": "", "output_tokens": 1}', "column prompt: 0 is not from 1"),
        ('{"prompt": "a", "output_tokens": 1}\n{"prompt": 3}', "line 2, column prompt: 3 is not a"),
        ('{"prompt": "a", "output_tokens": 1}\n{"promp', "line 2: '{\"promp' is not JSON"),
    ],
)
def test_what_cannot_be_read_is_named(read: Read, text: str, message: str) -> None:
    with pytest.raises(MalformedLineError, match=message):
        read(text)


def test_a_bad_conversation_is_skipped_but_not_a_broken_list(read: Read) -> None:
    tally = Tally(skip_bad_rows=True)
    text = json.dumps([3, TALK, {"conversations": 4}, TALK])
    assert len(read(text, tally=tally)) == 2
    assert (tally.rows, tally.skipped) == (4, 2)
    with pytest.raises(MalformedLineError, match="does not start a whole JSON value"):
        read(text[:-9], tally=tally)
    with pytest.raises(MalformedLineError, match="is not JSON"):
        read(text.replace("4", "four"), tally=tally)


@pytest.mark.parametrize(
    ("text", "message"),
    [("[{}] x", "comes after the end of the list"), ("[{}]\n[{}]", "line 2: .* comes after"),
     ("[{},]", "ends the list after a comma")],
)  # fmt: skip
def test_a_list_ends_where_the_file_does(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "list.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(MalformedLineError, match=message):
        list(json_list.list_items(path))


def test_a_broken_item_is_not_read_to_the_end_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused within the piece that it is in, a text without end at the most an item has."""
    monkeypatch.setattr(json_list, "_PIECE_CHARACTERS", 1000)
    monkeypatch.setattr(json_list, "_ITEM_CHARACTERS", 1 << 20)
    path = tmp_path / "list.json"
    with path.open("w", encoding="utf-8") as file:
        file.write('[{"a": nope},' + '{"b": 1},\n' * 1000)
        with pytest.raises(MalformedLineError, match=r"is not JSON \(Expecting value\)"):
            list(json_list.list_items(path))
    path.write_text('[{"a": "' + "b" * (3 << 20), encoding="utf-8")
    with pytest.raises(MalformedLineError, match="is longer than 1 MiB, which no request is"):
        list(json_list.list_items(path))


def test_conversations_that_are_no_requests_are_counted(read: Read) -> None:
    tally = Tally()
    assert len(read(json.dumps([TALK, {"conversations": []}]), tally=tally)) == 1
    assert (tally.rows, tally.silent, tally.skipped) == (2, 1, 0)


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
def test_a_list_is_read_the_same_in_pieces_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(json_list, "_PIECE_CHARACTERS", piece)
    path = tmp_path / "list.json"
    path.write_text('\n[ {"a": ["\\n", 1]}\n,\n{"b": "]"} , [\n], {}]\n', encoding="utf-8")
    expected = [(2, {"a": ["\n", 1]}), (4, {"b": "]"}), (4, []), (5, {})]
    assert list(json_list.list_items(path)) == expected


def test_an_empty_list_has_no_items(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(" [ ] ", encoding="utf-8")
    assert list(json_list.list_items(path)) == []
