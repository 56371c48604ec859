"""Typed fields of a JSON object; null is as good as absent, as for OpenAI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.serve.openai_errors import ApiError, shown, wrong


class Fields:
    """Reads an object's fields. Every method raises ApiError (400) naming the field, the value and
    what is allowed."""

    def __init__(self, values: Mapping[str, Any], place: str = "") -> None:
        self._values = values
        self._place = place

    def raw(self, name: str) -> Any:
        """The value as it came, None if there is none."""
        return self._values.get(name)

    def whole(self, name: str, least: int, most: int) -> int | None:
        """A whole number in a range."""
        value = self.raw(name)
        if value is not None and (type(value) is not int or not least <= value <= most):
            raise self.wrong(name, f"a whole number from {least} to {most}")
        return value

    def number(self, name: str, least: float, most: float) -> float | None:
        """A number in a range."""
        value = self.raw(name)
        if value is None:
            return None
        if type(value) not in (int, float) or not least <= value <= most:
            raise self.wrong(name, f"a number from {least:g} to {most:g}")
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false; false if absent."""
        value = self.raw(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return bool(value)

    def text(self, name: str) -> str | None:
        """A string that UTF-8 can hold."""
        value = self.raw(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(name, "a string")
        return checked_text(value, self._place + name)

    def object(self, name: str) -> Fields | None:
        """An object within."""
        value = self.raw(name)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return None if value is None else Fields(value, f"{self._place}{name}.")

    def known_only(self, *names: str) -> None:
        """Refuses a field that is none of these."""
        unknown = next((name for name in self._values if name not in names), None)
        if unknown is not None:
            raise self.wrong(unknown, f"left out: known are {', '.join(names)}")

    def wrong(self, name: str, allowed: str) -> ApiError:
        """The refusal of a value."""
        place = self._place + name[:40]
        value = shown(self.raw(name))
        return wrong(place, f"{place}={value} cannot be used: it is to be {allowed}.")


def checked_text(text: str, place: str) -> str:
    """The text, unless it has half a surrogate pair (JSON can), which is no character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise wrong(
            place, f"{place} has half a surrogate pair at character {error.start}: send whole ones."
        ) from error
    return text
