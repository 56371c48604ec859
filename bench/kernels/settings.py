"""The settings of `fragbench kernels`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.errors import SettingError
from bench.kernels.shape import Shape
from bench.key_values import read_key_values
from bench.model.shape import ModelShape, check_dtype
from bench.packaged import load_model

DEFAULTS = {
    "batches": "1,8,64",
    "contexts": "512,4096,32768",
    "block_sizes": "8,16,32,64,128,256",
    "dtype": "bf16",
    "model": "llama3_8b",
    "repeats": "100",
    "out": "",
}
DTYPES = ("bf16", "fp16", "fp8")
BLOCK_SIZES = (8, 16, 32, 64, 128, 256)
MOST_SEQUENCES, MOST_TOKENS = 4096, 1 << 20
LEAST_REPEATS, MOST_REPEATS = 5, 10_000
"""Fewer have no 20th and 80th percentile to speak of."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What was asked for; `out` is None for a dated folder."""

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    block_sizes: tuple[int, ...]
    dtype: str
    model: ModelShape
    repeats: int
    out: str | None

    def shapes(self) -> list[Shape]:
        """Every batch with every context, with the heads that one of the model's GPUs has."""
        gpus = self.model.tensor_parallel
        heads, kv_heads = self.model.heads // gpus, self.model.kv_heads // gpus
        return [
            Shape(batch, context, heads, kv_heads, self.model.head_dim, self.dtype)
            for batch in self.batches
            for context in self.contexts
        ]


def read_settings(argv: Sequence[str]) -> Settings:
    """Settings from key=value arguments. Raises SettingError."""
    examples = {name: value or "results/mine" for name, value in DEFAULTS.items()}
    given = DEFAULTS | read_key_values("kernels", argv, examples)
    check_dtype("dtype", given["dtype"], DTYPES)
    return Settings(
        batches=_numbers("batches", given["batches"], "sequences", MOST_SEQUENCES),
        contexts=_numbers("contexts", given["contexts"], "tokens", MOST_TOKENS),
        block_sizes=_block_sizes(given["block_sizes"]),
        dtype=given["dtype"],
        model=load_model(given["model"]),
        repeats=_repeats(given["repeats"]),
        out=given["out"] or None,
    )


def _block_sizes(text: str) -> tuple[int, ...]:
    sizes = _numbers("block_sizes", text, "tokens", BLOCK_SIZES[-1])
    wrong = next((size for size in sizes if size not in BLOCK_SIZES), None)
    if wrong is not None:
        allowed = ", ".join(map(str, BLOCK_SIZES))
        raise SettingError(f"block_sizes={text} has {wrong} tokens: choose from {allowed}.")
    return sizes


def _numbers(name: str, text: str, unit: str, most: int) -> tuple[int, ...]:
    """One or more, in rising order. Lists may be in the brackets that Hydra wants."""
    numbers = [_whole(part) for part in _bare(text).split(",")]
    if any(number is None or not 1 <= number <= most for number in numbers):
        raise SettingError(
            f"{name}={text} is no list of numbers of {unit}: give whole ones from 1 to {most}, "
            f"separated by commas, as in {name}={DEFAULTS[name]}."
        )
    return tuple(sorted({number for number in numbers if number is not None}))


def _bare(text: str) -> str:
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


def _repeats(text: str) -> int:
    repeats = _whole(text)
    if repeats is None or not LEAST_REPEATS <= repeats <= MOST_REPEATS:
        raise SettingError(
            f"repeats={text} is out of range: give a whole number of timed repeats from "
            f"{LEAST_REPEATS} to {MOST_REPEATS}."
        )
    return repeats


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
