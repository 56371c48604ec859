"""Files of lengths without times: tables and JSON lines, with columns named as people name them."""

from __future__ import annotations

from workloads.formats.azure import AZURE
from workloads.formats.burstgpt import BURSTGPT
from workloads.formats.json_lines import JsonFormat
from workloads.formats.llmservingsim import LLMSERVINGSIM
from workloads.formats.splitwise import SPLITWISE
from workloads.formats.table import TableFormat
from workloads.formats.vidur import VIDUR

_TRACES = (AZURE, BURSTGPT, VIDUR, SPLITWISE, LLMSERVINGSIM)
PROMPT_COLUMNS = (
    *("prompt_tokens", "prompt_len", "input_tokens", "input_length", "input_len"),
    *(name for trace in _TRACES for name in trace.prompt),
)
OUTPUT_COLUMNS = (
    *("output_tokens", "output_len", "output_length"),
    *(name for trace in _TRACES for name in trace.output),
)

CSV = TableFormat("csv", PROMPT_COLUMNS, OUTPUT_COLUMNS)
JSONL = JsonFormat("jsonl", PROMPT_COLUMNS, OUTPUT_COLUMNS)
