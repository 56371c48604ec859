"""What requests were that completed lately: the timeline's view of their lengths and latencies."""

from __future__ import annotations

from typing import Any

from bench.engine.sequence import Sequence

QUANTITIES = ("prompt_tokens", "generated_tokens", "ttft_s", "e2e_s")


class Completions:
    """Requests that completed since the last row; their whole distributions are in requests/."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {name: [] for name in QUANTITIES}

    def add(self, sequence: Sequence, end_s: float) -> None:
        """A request completed."""
        first_s = sequence.first_token_s
        known = {
            "prompt_tokens": sequence.request.prompt_tokens,
            "generated_tokens": sequence.generated,
            "ttft_s": None if first_s is None else first_s - sequence.sent_s,
            "e2e_s": end_s - sequence.sent_s,
        }
        for name, value in known.items():
            if value is not None:
                self._values[name].append(value)

    def take(self) -> dict[str, Any]:
        """`mean_` and `max_` of each quantity, null where nothing completed; then from none on."""
        row: dict[str, Any] = {}
        for name, values in self._values.items():
            row[f"mean_{name}"] = sum(values) / len(values) if values else None
            row[f"max_{name}"] = max(values, default=None)
            values.clear()
        return row
