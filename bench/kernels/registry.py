"""The implementations that are measured: known here without importing them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple

from bench.report.palette import BACKEND_COLOURS


class Provider(NamedTuple):
    """`module` has a `prepare` (bench/kernels/providers/base.py). It is measured where the package
    `needs` can be imported, once a block size if it reads through block tables (`paged`).
    `distribution` is what the package's version is listed under."""

    name: str
    module: str
    needs: str
    distribution: str
    paged: bool
    colour: str
    marker: str

    @property
    def installed(self) -> bool:
        """Whether the package is there; it is not imported."""
        return find_spec(self.needs) is not None

    @property
    def version(self) -> str:
        """The package and its version, "" if that is not known."""
        try:
            return f"{self.distribution} {version(self.distribution)}"
        except PackageNotFoundError:
            return ""


_PLACE = "bench.kernels.providers."
PROVIDERS = (
    Provider("paged_decode", _PLACE + "paged_decode", "triton", "triton", True,
             BACKEND_COLOURS["paged"], "o"),
    Provider("SDPA", _PLACE + "sdpa", "torch", "torch", False,
             BACKEND_COLOURS["contiguous"], ""),
    Provider("flashinfer", _PLACE + "flashinfer", "flashinfer", "flashinfer-python", True,
             "#44AA99", "s"),
    Provider("vLLM", _PLACE + "vllm", "vllm", "vllm", True, "#882255", "^"),
)  # fmt: skip
