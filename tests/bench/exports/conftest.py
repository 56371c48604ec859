"""Run folders with known requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.bench.report.conftest import run_writer

WriteRun = Callable[..., Path]

REQUESTS = pd.DataFrame(
    {
        "status": ["completed", "completed", "completed", "failed"],
        "cause": [None, None, None, "out of memory"],
        "prompt_tokens": [10, 20, 30, 40],
        "generated_tokens": [5, 1, 3, 2],
        "branches": [1, 1, 2, 1],
        "scheduled_s": [0.0, 1.0, 2.0, 3.0],
        "sent_s": [0.0, 1.0, 2.5, 3.0],
        "first_token_s": [1.0, 2.0, 4.5, 5.0],
        "last_token_s": [3.0, 2.0, 5.5, 5.5],
        "end_s": [3.0, 2.5, 5.5, 6.0],
    }
)
"""TTFTs of the completed: 1, 1, 2 s; TPOTs: 2 s / 4 and 1 s / 2; E2Es: 3, 1.5, 3 s."""


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """Writes runs with `REQUESTS` below `tmp_path`; `settings` are added to their config.yaml."""
    write = run_writer(tmp_path)

    def write_with_requests(folder: str, *labels: str, settings: str = "", **more: Any) -> Path:
        run = write(folder, *labels, **more)
        REQUESTS.to_parquet(run / "requests" / "part-00000.parquet")
        with (run / "config.yaml").open("a") as file:
            file.write(settings)
        facts = json.loads((run / "environment.json").read_text())
        facts["started"] = "2026-11-30T08:26:54+0000"
        (run / "environment.json").write_text(json.dumps(facts))
        return run

    return write_with_requests
