"""Where a segment goes on, and what is made of one whose worker could not sum it up."""

from __future__ import annotations

import json
from pathlib import Path

from bench.cells import Cell
from bench.load.joined import SERVER_REQUESTS
from bench.soak.segments import close_segment, next_segment, segment_cell
from bench.soak.state import Segment, Soak
from tests.bench.soak.test_pooled import write_segment


def test_traffic_goes_on_after_the_last_that_was_sent(tmp_path: Path) -> None:
    """A worker that died before its first flush sent nothing that counts."""
    cell = Cell("run", {"workload": {"name": "chat"}}, tmp_path)
    died_at_once = Segment("segment-001", 8.0, "restart", end_s=8.0)
    before = Segment("segment-000", 0.0, "start", end_s=8.0, sent_until_s=7.5)
    soak = Soak(60.0, "virtual", [], segments=[before, died_at_once])
    config = segment_cell(cell, soak, next_segment(soak, "restart")).config
    assert config["stop_after_s"] == 52.0
    rest = config["workload"]
    assert (rest["since_s"], rest["after_s"], rest["start_s"]) == (0.0, 7.5, 8.0)
    assert rest["workload"] == {"name": "chat"}
    soak = Soak(60.0, "virtual", [], segments=[Segment("segment-000", 0.0, "start", end_s=0.0)])
    anew = segment_cell(cell, soak, next_segment(soak, "restart")).config
    assert anew["workload"] == {"name": "chat"}


def test_a_segment_that_died_while_it_was_joined_has_the_servers_rows(tmp_path: Path) -> None:
    folder = write_segment(tmp_path / "segment-000", [1.0] * 10, sent=12, sent_until_s=99.5)
    (folder / "requests").rename(folder / SERVER_REQUESTS)
    (folder / "requests").mkdir()
    (folder / "requests" / "part-00000.parquet").write_bytes(b"PAR1")
    segment = Segment("segment-000", 100.0, "start")
    close_segment(Cell("run", {}, tmp_path), segment, "incomplete", "killed")
    assert (segment.end_s, segment.sent_until_s, segment.lost) == (200.0, 99.5, 2)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert (summary["status"], summary["requests"]["completed"]) == ("incomplete", 10)
