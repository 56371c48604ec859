"""The Mooncake traces of 2025.

Source: kvcache-ai/Mooncake, `FAST25-release/traces/*.jsonl` (Qin et al., Mooncake, FAST 2025): one
JSON object a line, times in milliseconds. Requests share what their `hash_ids` share: one id for
each block of 512 prompt tokens, the last block partial. Without such ids nothing says that a file's
times are milliseconds: it needs `format=mooncake`.
"""

from __future__ import annotations

from workloads.formats.json_lines import JsonFormat

MOONCAKE = JsonFormat(
    name="mooncake",
    time="timestamp",
    ns_per_unit=1_000_000,
    unit="milliseconds",
    prompt=("input_length",),
    output=("output_length",),
    ids="hash_ids",
    block_tokens=512,
    keys=("hash_ids",),
    no_keys=("chat_id",),
)
