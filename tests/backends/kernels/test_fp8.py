"""FP8 by integer arithmetic, against PyTorch's casts, bit by bit."""

from __future__ import annotations

import math

import torch

from tests.backends.kernels.conftest import Run
from tests.backends.kernels.jobs import fp8_codes


def finite_values() -> torch.Tensor:
    values = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    return values[values.isfinite()].unique()


def test_codes_are_those_of_a_saturating_cast_and_values_come_back(run_triton: Run) -> None:
    exact = finite_values()
    ties = (exact[1:] + exact[:-1]) / 2
    above = torch.nextafter(ties, torch.tensor(math.inf))
    below = torch.nextafter(ties, torch.tensor(-math.inf))
    odd = torch.tensor([0.0, -0.0, 449, 464, 1e30, -1e30, math.inf, -math.inf, 1e-30, -1e-45])
    generator = torch.Generator().manual_seed(0)
    spread = torch.randn(4000, generator=generator) * torch.logspace(-4, 3, 4000)
    values = torch.cat([exact, ties, above, below, odd, spread])
    codes, decoded = run_triton(fp8_codes, values.tolist())

    expected = values.clamp(-448, 448).to(torch.float8_e4m3fn)
    assert codes == expected.view(torch.uint8).tolist()
    all_codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    torch.testing.assert_close(torch.tensor(decoded), all_codes, rtol=0, atol=0, equal_nan=True)


def test_nan_stays_nan(run_triton: Run) -> None:
    (code,), decoded = run_triton(fp8_codes, [math.nan])
    assert code & 0x7F == 0x7F
    assert math.isnan(decoded[0x7F])
    assert math.isnan(decoded[0xFF])
