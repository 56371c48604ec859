"""BurstGPT: four months of ChatGPT and GPT-4 traffic.

Source: HPMLL/BurstGPT, `BurstGPT_{1,2,3}.csv` and `BurstGPT_without_fails_{1,2,3}.csv` (Wang et
al., BurstGPT, arXiv 2401.17644). 1 and 2 have `Timestamp,Model,Request tokens,Response tokens,Total
tokens,Log Type`; 3 has `Session ID` and `Elapsed time` as well, and times such as `19440110.0`. A
time is "seconds from 0:00:00 on the first day", and a request whose `Response tokens` are 0 failed,
says the README. Sessions are not followed: the trace does not say what of a prompt was said before.
"""

from __future__ import annotations

from workloads.formats.clocks import seconds
from workloads.formats.table import TableFormat

BURSTGPT = TableFormat(
    name="burstgpt",
    time="Timestamp",
    clock=seconds,
    time_like="a number of seconds such as 5 or 19440110.0",
    prompt=("Request tokens",),
    output=("Response tokens",),
    zero_is_failed=True,
)
