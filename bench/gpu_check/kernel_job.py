"""The Triton kernels against their references, in a process on the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch

from backends.kernels.decode import paged_decode
from backends.kernels.prefill import paged_prefill
from backends.kernels.store import store_kv
from bench.device.job import report_progress
from bench.gpu_check.kernel_cases import Case, name, variants
from bench.gpu_check.kernel_errors import Attention, attention_error, store_differences

SHORT = (1, 15, 16, 17, 255, 256, 257)
DECODE_CONTEXTS = (*SHORT, 1000, 4097)
PREFILL = (1, 15, 16, 33, 130, 257, 1500), (1, 15, 1, 16, 5, 17, 600)
STORE = (1, 15, 16, 17, 40), (1, 15, 4, 17, 1)

UNUSUAL: tuple[dict[str, Any], ...] = (
    {"heads": (7, 1), "head_dim": 128, "dtype": torch.bfloat16},  # a group of no power of two
    {"heads": (20, 1), "head_dim": 64, "dtype": torch.float16},
    {"heads": (8, 2), "head_dim": 40, "dtype": torch.float16},
    {"heads": (8, 2), "head_dim": 256, "dtype": torch.bfloat16},
)


class Sizes(NamedTuple):
    """Tokens of the sequences of each check; tests in the interpreter take shorter ones."""

    decode: tuple[int, ...] = DECODE_CONTEXTS
    prefill: tuple[tuple[int, ...], tuple[int, ...]] = PREFILL
    store: tuple[tuple[int, ...], tuple[int, ...]] = STORE


class Variant(NamedTuple):
    """One shape of heads and blocks in one dtype, in each kernel's batch."""

    decode: Case
    prefill: Case
    store: Case


def all_variants(sizes: Sizes) -> list[Variant]:
    """Every block size, head shape and dtype, each with a few of the others."""
    one_each = (1,) * len(sizes.decode)
    batches = ((sizes.decode, one_each), sizes.prefill, sizes.store)
    usual = zip(*(variants(*batch, all_of_them=False) for batch in batches), strict=True)
    unusual = (
        Variant(*(Case(*batch, cache_dtype=more["dtype"], **more) for batch in batches))
        for more in UNUSUAL
    )
    return [*(Variant(*cases) for cases in usual), *unusual]


def check_kernels(payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row for each kernel of every `of`-th variant from the `worker`-th on. A check that raises
    is a row with the error."""
    found = all_variants(Sizes())
    mine = found[payload["worker"] :: payload["of"]]
    rows: list[dict[str, Any]] = []
    for number, variant in enumerate(mine, 1):
        rows += check_variant(variant, payload["device"])
        said = f"{number} of {len(mine)} shapes of process {payload['worker'] + 1} checked"
        report_progress({"said": said})
    return rows


def check_variant(variant: Variant, device: str) -> Iterator[dict[str, Any]]:
    """Rows: kernel, case, error and tolerance (None where bits are compared), note, passed."""
    attentions: tuple[tuple[str, Attention, Case], ...] = (
        ("decode", paged_decode, variant.decode),
        ("decode, 3 splits", partial(paged_decode, splits=3), variant.decode),
        ("decode, 1 split", partial(paged_decode, splits=1), variant.decode),
        ("prefill", paged_prefill, variant.prefill),
    )
    for kernel, attention, case in attentions:
        yield _attention_row(kernel, attention, case, device)
    yield _store_row(variant.store, device)


def _attention_row(kernel: str, attention: Attention, case: Case, device: str) -> dict[str, Any]:
    row = _row(kernel, case)
    try:
        error = attention_error(attention, case, device)
    except Exception as error_:
        return row | {"note": _first_line(error_)}
    note = "" if error == error else "NaN: it read what it must not, or wrote not all"
    return row | {
        "error": error if error == error else None,
        "tolerance": case.tolerance,
        "note": note,
        "passed": error <= case.tolerance,
    }


def _store_row(case: Case, device: str) -> dict[str, Any]:
    row = _row("store", case)
    try:
        differing = store_differences(store_kv, case, (0, 3), device)
    except Exception as error:
        return row | {"note": _first_line(error)}
    note = f"{' and '.join(differing)} differ in some bit" if differing else ""
    return row | {"note": note, "passed": not differing}


def _row(kernel: str, case: Case) -> dict[str, Any]:
    return {
        "kernel": kernel,
        "case": name(case),
        "error": None,
        "tolerance": None,
        "note": "",
        "passed": False,
    }


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
