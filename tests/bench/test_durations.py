from __future__ import annotations

import pytest

from bench.durations import seconds, spoken
from bench.errors import SettingError


@pytest.mark.parametrize(
    ("text", "expected"),
    [("6h", 21600), ("90m", 5400), ("45s", 45), ("2d", 172800), ("30", 30), ("0.5h", 1800)],
)
def test_lengths_of_time_are_read_with_their_units(text: str, expected: float) -> None:
    assert seconds("duration", text) == expected


@pytest.mark.parametrize(
    "text", ["", "h", "6 hours", "-1h", "0", "0s", "1e3", "nan", "1h30m", "9999d"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=f"^duration={text} is no length of time: give"):
        seconds("duration", text)


def test_lengths_of_time_are_said_as_people_say_them() -> None:
    assert [spoken(each) for each in (45, 720, 21600)] == ["45 s", "12 min", "6.0 h"]
