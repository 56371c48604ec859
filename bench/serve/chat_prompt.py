"""A conversation as one prompt: a line a message, `role: content`, then `assistant: `.

It is the same for every model. A later turn's prompt begins with the earlier turn's prompt and its
answer, so that prefix caches find them.
"""

from __future__ import annotations

from typing import Any

from bench.serve.fields import Fields
from bench.serve.openai_errors import shown, wrong

ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def chat_prompt(messages: Any) -> str:
    """Raises ApiError (400) for what is no list of messages with text."""
    if not isinstance(messages, list) or not messages:
        raise wrong("messages", "messages is to be a list of at least one message.")
    lines = [_line(message, f"messages[{place}]") for place, message in enumerate(messages)]
    return "".join(lines) + "assistant: "


def _line(message: Any, place: str) -> str:
    if not isinstance(message, dict):
        raise wrong(place, f"{place} is to be an object with role and content.")
    role = Fields(message, f"{place}.").text("role")
    if role not in ROLES:
        raise wrong(
            f"{place}.role",
            f"{place}.role={shown(role)} is unknown: use one of {', '.join(ROLES)}.",
        )
    return f"{role}: {_content(message.get('content'), f'{place}.content', role)}\n"


def _content(content: Any, place: str, role: str) -> str:
    if content is None and role == "assistant":
        return ""
    if isinstance(content, list):
        return "".join(_part(part, f"{place}[{index}]") for index, part in enumerate(content))
    text = Fields({place: content}).text(place)
    if text is None:
        raise wrong(place, f"{place} is missing: send a string.")
    return text


def _part(part: Any, place: str) -> str:
    if isinstance(part, dict) and part.get("type") == "text":
        text = Fields(part, f"{place}.").text("text")
        if text is not None:
            return text
    raise wrong(place, f'{place} is no text: send parts like {{"type": "text", "text": "..."}}.')
