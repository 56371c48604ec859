from __future__ import annotations

import pytest

from workloads.formats.registry import FORMATS, by_name, names, recognise

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
MOONCAKE = '{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [0]}'


@pytest.mark.parametrize(("line", "name"), [(AZURE, "azure"), (MOONCAKE, "mooncake")])
def test_a_first_line_is_recognised_by_its_format_alone(line: str, name: str) -> None:
    assert [known.name for known in FORMATS if known.recognises(line)] == [name]
    assert recognise(line) is by_name(name)


@pytest.mark.parametrize(
    "line", ["", "PAR1", "a,b", "{}", "[1]", "5", '{"timestamp": 0}', "[" * 9999]
)
def test_anything_else_is_not_recognised(line: str) -> None:
    assert recognise(line) is None


def test_auto_is_offered_first() -> None:
    assert names() == ["auto", "azure", "mooncake"]
