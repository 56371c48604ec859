"""Fit three numbers a GPU to measured operator times: `python -m bench.costs.fit [FOLDER]`.

FOLDER (else $FRAGBENCH_PROFILES) holds the profiles. Prints the numbers that `conf/gpu/` holds,
the two shared by all GPUs of `conf/costs/`, and the tables of docs/costs.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bench.costs.accuracy import BANDS, LAYER, LINEAR, band_errors, band_weights
from bench.costs.constants import CostConstants
from bench.costs.model import CostModel
from bench.costs.operators import elementwise_token_bytes, linear_work
from bench.costs.profiles import ELEMENTWISE_OPERATORS, Floats, Profile, read_profiles
from bench.errors import SettingError
from bench.gpu import Gpu
from bench.packaged import load_constants, load_gpu

ELEMENTWISE = tuple(ELEMENTWISE_OPERATORS.values())


def fit_gpu(gpu: Gpu, profiles: Sequence[Profile]) -> Gpu:
    """`gpu` with its three numbers fitted to `profiles`, which are its own.

    Minimizes the squared log ratio of modelled to measured time, of each linear operator and of
    their sum, every band of token counts weighing the same. Single operators tell bandwidth
    from overhead, which their sum cannot.
    """
    problems = [_LinearProblem(gpu, profile) for profile in profiles]

    def residuals(log_numbers: Floats) -> Floats:
        return np.concatenate([problem.residuals(*np.exp(log_numbers)) for problem in problems])

    start = np.log([0.7, 0.8, 5.0])
    compute, bandwidth, overhead_us = np.exp(_gauss_newton(residuals, start))
    return replace(
        gpu,
        compute_efficiency=float(compute),
        bandwidth_efficiency=float(bandwidth),
        operator_overhead_us=float(overhead_us),
    )


def fit_elementwise(
    gpus: dict[str, Gpu], profiles: Sequence[Profile], constants: CostConstants
) -> CostConstants:
    """`constants` with the two numbers of elementwise operators fitted to all `profiles`: the
    share of peak bandwidth that they reach, and that of their GPU's operator overhead."""
    cases = []
    for profile in profiles:
        gpu = gpus[profile.gpu]
        token_bytes = elementwise_token_bytes(profile.shape, "fp16", profile.tensor_parallel)
        nbytes = profile.tokens * sum(token_bytes[name] for name in ELEMENTWISE)
        ideal_s = nbytes / (gpu.bandwidth_gb_s * 1e9)
        overhead_s = len(ELEMENTWISE) * gpu.operator_overhead_us * 1e-6
        measured_s = np.sum([profile.seconds[name] for name in ELEMENTWISE], axis=0)
        cases.append((ideal_s, overhead_s, measured_s, np.sqrt(band_weights(profile.tokens))))

    def residuals(log_numbers: Floats) -> Floats:
        efficiency, share = np.exp(log_numbers)
        return np.concatenate(
            [w * np.log((ideal / efficiency + share * over) / m) for ideal, over, m, w in cases]
        )

    efficiency, share = np.exp(_gauss_newton(residuals, np.log([0.5, 0.8])))
    return replace(
        constants,
        elementwise_bandwidth_efficiency=float(efficiency),
        elementwise_overhead_share=float(share),
    )


class _LinearProblem:
    """One profile's linear operators: their work, which no fitted number changes, and times."""

    def __init__(self, gpu: Gpu, profile: Profile) -> None:
        work = [
            [linear_work(matrix, "fp16", int(tokens)) for tokens in profile.tokens]
            for matrix in profile.shape.linear_layers(profile.tensor_parallel)
        ]
        peak = np.array([gpu.fp16_tflops * 1e12, gpu.bandwidth_gb_s * 1e9])
        ideal = np.array(work) / peak
        self._compute_s, self._memory_s = ideal[..., 0], ideal[..., 1]
        self._measured_s = np.array([profile.seconds[name] for name in LINEAR])
        self._weights = np.sqrt(band_weights(profile.tokens))

    def residuals(self, compute: float, bandwidth: float, overhead_us: float) -> Floats:
        modelled_s = np.hypot(self._compute_s / compute, self._memory_s / bandwidth)
        modelled_s += overhead_us * 1e-6
        each = np.log(modelled_s / self._measured_s) / np.sqrt(len(LINEAR))
        whole = np.log(modelled_s.sum(axis=0) / self._measured_s.sum(axis=0))
        return (np.vstack([each, whole]) * self._weights).ravel()


def _gauss_newton(residuals: Callable[[Floats], Floats], start: Floats) -> Floats:
    """Least squares from `start`, near the solution, with a numeric Jacobian."""
    point, width = start, 1e-6
    for _ in range(50):
        here = residuals(point)
        slopes = [(residuals(point + width * axis) - here) / width for axis in np.eye(len(point))]
        step = np.linalg.lstsq(np.array(slopes).T, -here, rcond=None)[0]
        point = point + step
        if np.abs(step).max() < 1e-9:
            return point
    raise RuntimeError("the fit does not converge: are the profiles in milliseconds?")


def cost_model(profile: Profile, gpu: Gpu, constants: CostConstants) -> CostModel:
    """The cost model of the layer that `profile` measured."""
    return CostModel(
        shape=profile.shape,
        gpu=gpu,
        weight_dtype="fp16",
        kv_dtype="fp16",
        tensor_parallel=profile.tensor_parallel,
        constants=constants,
    )


def _row(label: str, errors: dict[str, float | None]) -> str:
    cells = ["-" if e is None else f"{100 * e:.1f}" for e in errors.values()]
    return f"| {label} | {' | '.join(cells)} |"


def _table(title: str, rows: list[str]) -> str:
    head = f"| {title} | {' | '.join(BANDS)} |"
    return "\n".join([head, "|---" * (len(BANDS) + 1) + "|", *rows, ""])


def _report(profiles: Sequence[Profile]) -> str:
    fitted_on = [p for p in profiles if p.tensor_parallel == 1]
    gpus = {
        name: fit_gpu(load_gpu(name), [p for p in fitted_on if p.gpu == name])
        for name in sorted({p.gpu for p in fitted_on})
    }
    constants = fit_elementwise(gpus, fitted_on, load_constants())

    def errors(profile: Profile, operators: Sequence[str], gpu: Gpu | None = None) -> str:
        costs = cost_model(profile, gpu or gpus[profile.gpu], constants)
        label = f"{profile.name}, {profile.tensor_parallel} GPU"
        return _row(label, band_errors(profile, costs, operators))

    lines = [
        f"{name}: compute_efficiency {gpu.compute_efficiency:.3f}, bandwidth_efficiency "
        f"{gpu.bandwidth_efficiency:.3f}, operator_overhead_us {gpu.operator_overhead_us:.2f}"
        for name, gpu in gpus.items()
    ]
    lines.append(
        f"costs: elementwise_bandwidth_efficiency "
        f"{constants.elementwise_bandwidth_efficiency:.3f}, elementwise_overhead_share "
        f"{constants.elementwise_overhead_share:.3f}\n"
    )
    tables = {"Linear operators": LINEAR} | {name: (name,) for name in LINEAR}
    tables |= {"Elementwise operators": ELEMENTWISE, "Whole layer": LAYER}
    for title, operators in tables.items():
        lines.append(_table(f"{title} (%)", [errors(p, operators) for p in fitted_on]))
    held_out = [p for p in profiles if p.tensor_parallel > 1]
    lines.append(_table("Held out: shared by GPUs (%)", [errors(p, LINEAR) for p in held_out]))
    crossed = [
        errors(test, LINEAR, fit_gpu(load_gpu(test.gpu), [train]))
        for test in fitted_on
        for train in fitted_on
        if test.gpu == train.gpu and test.name != train.name
    ]
    lines.append(_table("Fitted to the GPU's other model (%)", crossed))
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Print the fit; exit code 2 with one sentence if there are no profiles."""
    folder = arguments[0] if arguments else os.environ.get("FRAGBENCH_PROFILES")
    if folder is None:
        print("name the folder of profiles, or set FRAGBENCH_PROFILES to it", file=sys.stderr)
        return 2
    try:
        print(_report(read_profiles(Path(folder))))
    except SettingError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
