"""Requests of the simulator LLMServingSim.

Source: casys-kaist/LLMServingSim, `workloads/README.md`: JSON lines with `input_toks`,
`output_toks` and `arrival_time_ns`. Its sessions of dependent calls (`sub_requests`) are refused,
and its token ids are not read: prompts share nothing.
"""

from __future__ import annotations

from workloads.formats.json_lines import JsonFormat

LLMSERVINGSIM = JsonFormat(
    name="llmservingsim",
    time="arrival_time_ns",
    unit="nanoseconds",
    prompt=("input_toks",),
    output=("output_toks",),
)
