"""Checks of backend settings: Hydra passes on whatever a user wrote."""

from __future__ import annotations

from backends.base import BackendError


def one_of(setting: str, value: object, allowed: tuple[str, ...]) -> str:
    """The value when it is allowed. Raises BackendError."""
    if isinstance(value, str) and value in allowed:
        return value
    raise BackendError(f"{setting}={value!r} is not known: choose one of {', '.join(allowed)}")


def integer(setting: str, value: object, low: int, high: int, unit: str) -> int:
    """The value when it is a whole number in [low, high]. Raises BackendError."""
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    raise BackendError(
        f"{setting}={value!r} is out of range: give a whole number of {unit} from {low} to {high}"
    )


def watermark_share(value: object) -> float:
    """The share of blocks that admission leaves free, when it is one. Raises BackendError."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1:
        return value
    raise BackendError(
        f"backend.watermark={value!r} is out of range: give the share of blocks that admission "
        "leaves free, from 0 up to 1, such as 0.01"
    )


def room_for_one(budget_bytes: int, blocks: int, block_tokens: int, max_model_len: int) -> None:
    """Raises BackendError for a pool that cannot hold one sequence, beside the null block."""
    need = -(-max_model_len // block_tokens) + 1
    if blocks < need:
        raise BackendError(
            f"the KV budget of {budget_bytes / 2**30:.2f} GiB holds {blocks} blocks of "
            f"{block_tokens} tokens and one sequence of max_model_len={max_model_len} needs {need} "
            "with the null block: raise kv_budget or utilization, or lower max_model_len"
        )
