"""What test_kernels.py has the interpreting process do: only there may kernels be imported."""

from __future__ import annotations

from typing import Any

SHORT = {
    "decode": (1, 16, 17, 300),
    "prefill": ((1, 16, 33), (1, 5, 17)),
    "store": ((1, 15, 17), (1, 4, 17)),
}


def _variants() -> list[Any]:
    from bench.gpu_check.kernel_job import Sizes, all_variants

    return all_variants(Sizes(**SHORT))


def describe_variants() -> list[tuple[int, tuple[int, int], str, str]]:
    """Block size, heads, dtype and the cache's dtype of each variant's prefill."""
    cases = [variant.prefill for variant in _variants()]
    return [(c.block_size, c.heads, str(c.dtype), str(c.cache_dtype)) for c in cases]


def check_variants(numbers: tuple[int, ...], device: str = "cpu") -> list[dict[str, Any]]:
    from bench.gpu_check.kernel_job import check_variant

    found = _variants()
    return [row for number in numbers for row in check_variant(found[number], device)]
