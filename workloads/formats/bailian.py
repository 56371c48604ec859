"""Alibaba's Bailian traces of 2024.

Source: alibaba-edu/qwen-bailian-usagetraces-anon, `qwen_trace{A,B}_blksz_16.jsonl` (Wang et al.,
KVCache Cache in the Wild, ATC 2025): Mooncake's keys and more, but times in seconds and an id for
each block of 16 prompt tokens. `chat_id` tells the two apart.
"""

from __future__ import annotations

from workloads.formats.json_lines import JsonFormat

BAILIAN = JsonFormat(
    name="bailian",
    time="timestamp",
    ns_per_unit=1_000_000_000,
    unit="seconds",
    prompt=("input_length",),
    output=("output_length",),
    ids="hash_ids",
    block_tokens=16,
    keys=("chat_id",),
)
