"""The engine's limits and padding, with what the backend and the model suggest filled in."""

from __future__ import annotations

from typing import Literal, cast

from backends.base import Backend
from bench.config import Config
from bench.engine.padding import Padding
from bench.engine.scheduler import Limits
from bench.errors import SettingError

CHUNKED_TOKEN_BUDGET = 2048


def resolve_limits(config: Config, backend: Backend) -> Limits:
    """The engine's limits with what the backend prefers filled in. Raises SettingError."""
    engine = config.engine
    prefill = cast(Literal["whole", "chunked"], engine.prefill or backend.prefill)
    budget = engine.token_budget
    if prefill == "whole":
        budget = budget or config.max_model_len
        if budget < config.max_model_len:
            raise SettingError(
                f"engine.token_budget={budget} is below max_model_len={config.max_model_len} "
                "with engine.prefill=whole, so the longest prompt could never run: raise it, "
                "lower max_model_len or set engine.prefill=chunked."
            )
    else:
        budget = budget or max(CHUNKED_TOKEN_BUDGET, engine.max_num_seqs)
        if budget < engine.max_num_seqs:
            raise SettingError(
                f"engine.token_budget={budget} is below engine.max_num_seqs="
                f"{engine.max_num_seqs}, so that not every sequence could decode: raise the "
                "first or lower the second."
            )
    return Limits(
        prefill=prefill,
        token_budget=budget,
        max_num_seqs=engine.max_num_seqs,
        max_live_tokens=engine.max_live_tokens,
        admit_whole_prompt=engine.admit_whole_prompt,
        on_oom=cast(Literal["queue", "fail"], engine.on_oom),
        batching=cast(Literal["continuous", "static"], engine.batching),
        longest_pass=config.max_model_len if engine.one_at_a_time else None,
    )


def resolve_padding(config: Config, backend: Backend, limits: Limits) -> Padding | None:
    """How steps are padded: as `engine.activation_buckets` says, or as the backend does."""
    padded = config.engine.activation_buckets
    if padded is None:
        padded = backend.activation_buckets
    return Padding(*limits.largest_step) if padded else None
