from __future__ import annotations

from pathlib import Path

import pytest

from workloads.formats import json_list
from workloads.formats.base import MalformedLineError
from workloads.formats.length_pairs import read_pairs


def read(tmp_path: Path, text: str, name: str = "auto") -> list[tuple[int, int]]:
    path = tmp_path / "lengths"
    path.write_text(text, encoding="utf-8")
    return [tuple(pair) for pair in read_pairs(path, name)]


@pytest.mark.parametrize(
    "text",
    [
        "prompt_tokens,output_tokens\n7,3\n2,9\n",
        "\n id , output_len ,prompt_len\r\na,3, 7\r\n\r\nb,9,2",
        '{"prompt_tokens": 7, "output_tokens": 3}\n{"output_tokens": 9, "prompt_tokens": "2"}\n',
        '{"input_length": 7, "output_length": 3}\n{"input_length": 2, "output_length": 9}',
        '{"timestamp": 0, "input_length": 7, "output_length": 3}\n'
        '{"timestamp": 0, "input_length": 2, "output_length": 9}',
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,7,3\n"
        "2023-11-16 18:15:40.6805900,2,9\n",  # the times do not matter
        '[{"conversations": [{"from": "human", "value": "seven tokens are 25 bytes"},'
        ' {"from": "gpt", "value": "1234567890"}]},\n {"conversations": []}, '
        '{"conversations": [{"value": "abcde"}, {"value": "123456789012345678901234567890123"}]}]',
    ],
)
def test_every_format_is_recognised_and_read(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == [(7, 3), (2, 9)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prompt_tokens,output_tokens\n7,3\n7\n", "line 3: '7' has 1 values; 2 are expected"),
        ("prompt_tokens,output_tokens\n7,x\n", "line 2, column output_tokens: 'x' is not a whole"),
        ("prompt_tokens,output_tokens\n7,0\n", "line 2, column output_tokens: 0 is not from 1"),
        ("a,output_tokens\n7,0\n", "line 1: 'a,output_tokens' has none of the columns prompt_tok"),
        ('{"prompt_tokens": 7}', "line 1: 'prompt_tokens' has none of the columns output_tokens"),
        ('{"prompt_tokens": 7, "output_tokens": 1}\n[3]', r"line 2: '\[3\]' is not a JSON object"),
        ('{"prompt_tokens": 7, "output_tokens": 1}\n{', "line 2: '{' is not JSON"),
        ('{"prompt_tokens": 1.5, "output_tokens": 1}', "column prompt_tokens: 1.5 is not a whole"),
        ("[\n\n{}]", "line 3, column conversations: {} is not a list of messages"),
        ('[\n{"conversations": [1, 2]}]', "line 2, column value: 1 is not a message with text"),
        ('[{"conversations": []},\n\n3]', "line 3, column conversations: 3 is not a list"),
        ('[\n{"conversations": []}\n{}]', "line 3: '{}]' is neither a comma nor the end"),
        ('[{"conversations": []},\n{"conv', "line 2: '{\"conv' does not start a whole JSON value"),
        ('[{"conversations": []}', "line 1: '' is neither a comma nor the end of the list"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(MalformedLineError, match=message):
        read(tmp_path, text)


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
