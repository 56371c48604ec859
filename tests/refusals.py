"""How every command answers wrong input: exit code 2, one sentence, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from bench.cli import main


def check_refused(
    arguments: Sequence[str], parts: Iterable[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs a command and checks its answer, which has all the `parts`."""
    assert main(list(arguments)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("fragbench: ")
    assert said.err.count("\n") == 1
    for part in parts:
        assert part in said.err
