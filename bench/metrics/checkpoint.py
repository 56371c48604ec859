"""What a run that may be killed keeps on disk of its engine: figures as they were at the last
flush, from which a summary is made in its stead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.engine.engine import Engine
from bench.metrics.inter_token import BinnedGaps
from bench.metrics.recorder import Recorder
from bench.metrics.records import write_json

CHECKPOINT = "checkpoint.json"


def write_checkpoint(
    folder: Path,
    gaps: BinnedGaps,
    engine: Engine,
    recorder: Recorder,
    simulated_s: float,
    sent_until_s: float,
    facts: dict[str, Any],
    figures: dict[str, Any],
) -> None:
    """Written before the rows of the same flush, so that every request with a row counts in `sent`.

    `sent_until_s`: all traffic up to then was sent; what fell due during the last step was not.
    `weights`: what means of several runs are weighted by.
    """
    account = engine.account
    content = {
        "simulated_s": simulated_s,
        "sent": engine.sent,
        "sent_until_s": sent_until_s,
        "weights": {
            "busy_s": recorder.busy_s,
            "held_byte_s": account.held_byte_s,
            "shared_byte_s": account.shared_byte_s,
        },
        "itl_bins": gaps.bins(),
        "facts": facts,
        "figures": figures,
    }
    write_json(folder / CHECKPOINT, content)
