"""Traces of the simulator splitwise-sim.

Source: Mutinifni/splitwise-sim, `generate_trace.py` and `traces/test_trace.csv` (Patel et al.,
Splitwise, ISCA 2024): `request_id,request_type,application_id,arrival_timestamp,batch_size,
prompt_size,token_size`. Times are seconds, as its request rates are requests/s; numbers may be
written as floats, such as `7564.0`. Only time and lengths are read.
"""

from __future__ import annotations

from workloads.formats.clocks import seconds
from workloads.formats.table import TableFormat

SPLITWISE = TableFormat(
    name="splitwise",
    time="arrival_timestamp",
    clock=seconds,
    time_like="a number of seconds such as 7564.0",
    prompt=("prompt_size",),
    output=("token_size",),
)
