"""Traces of the simulator Vidur.

Source: microsoft/vidur, `data/processed_traces/splitwise_{code,conv}.csv` (Agrawal et al., Vidur,
MLSys 2024): `arrived_at,num_prefill_tokens,num_decode_tokens`, times in seconds from the first
request. Its tables without times, such as `arxiv_summarization_*.csv`, are read as lengths.
"""

from __future__ import annotations

from workloads.formats.clocks import seconds
from workloads.formats.table import TableFormat

VIDUR = TableFormat(
    name="vidur",
    time="arrived_at",
    clock=seconds,
    time_like="a number of seconds such as 0.052",
    prompt=("num_prefill_tokens",),
    output=("num_decode_tokens",),
)
