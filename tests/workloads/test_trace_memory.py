"""Reading takes the same memory whatever the file's size: measured in processes of their own."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv

READS = """
import json, sys, time
from workloads.trace import TraceWorkload

def peak_mib():
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024

found = []
for path in sys.argv[1:]:
    workload = TraceWorkload(path=path)
    requests = sum(1 for _ in workload.requests(0))
    facts = workload.trace_facts()["workload"]
    found.append({"requests": requests, "rows": facts["rows"], "failed": facts["failed_requests"],
                  "peak_mib": peak_mib(), "cpu_s": time.process_time()})
print(json.dumps(found))
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").is_file(), reason="peak memory is read from /proc, of Linux"
)


def write_burstgpt(path: Path, rows: int) -> str:
    """A file like BurstGPT_3.csv, where every 14th request failed (7 % of them did)."""
    rng = np.random.default_rng(0)
    prompts, outputs = rng.integers(1, 4000, rows), rng.integers(1, 900, rows)
    outputs[::14] = 0
    columns = {
        "Timestamp": np.cumsum(rng.integers(0, 3, rows)).astype(np.float64),
        "Session ID": pa.nulls(rows, pa.string()),
        "Elapsed time": rng.integers(0, 60, rows),
        "Model": pa.repeat("ChatGPT", rows),
        "Request tokens": prompts,
        "Response tokens": outputs,
        "Total tokens": prompts + outputs,
        "Log Type": pa.repeat("API log", rows),
    }
    options = csv.WriteOptions(quoting_style="none")
    csv.write_csv(pa.table(columns), path, options)
    return str(path)


def read(*paths: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-c", READS, *paths]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: list[dict[str, Any]] = json.loads(printed)
    return found


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    small = write_burstgpt(tmp_path / "small.csv", 1_400)
    large = write_burstgpt(tmp_path / "large.csv", 140_000)
    packed = tmp_path / "large.csv.gz"
    packed.write_bytes(gzip.compress(Path(large).read_bytes(), 1))
    first, second, third = read(small, large, str(packed))
    assert first["requests"] == 1_300
    assert (second["requests"], second["failed"], second["rows"]) == (130_000, 10_000, 140_000)
    assert third["requests"] == 130_000
    # 140,000 rows kept as tuples would take 30 MiB
    assert third["peak_mib"] - first["peak_mib"] < 8


@pytest.mark.long
def test_five_million_rows_are_read_within_a_minute_and_300_mb(tmp_path: Path) -> None:
    (found,) = read(write_burstgpt(tmp_path / "BurstGPT_3.csv", 5_000_000))
    assert found["rows"] == 5_000_000
    assert found["requests"] == 5_000_000 - 357_143
    assert found["peak_mib"] * 1.048576 < 300
    assert found["cpu_s"] < 60  # of this process: checked, then read again
