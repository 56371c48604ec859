from __future__ import annotations

from collections.abc import Callable

import pytest

from workloads.formats.base import Tally, TraceRow
from workloads.formats.registry import choose

Read = Callable[..., list[TraceRow]]


@pytest.fixture(scope="session")
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """The rows of a file of this text, by whichever format it is of."""
    path = tmp_path_factory.mktemp("formats") / "trace"

    def rows(content: str, name: str = "auto", tally: Tally | None = None) -> list[TraceRow]:
        path.write_text(content, encoding="utf-8", newline="")
        return list(choose("format", name, path).rows(path, tally or Tally()))

    return rows
