"""How a run's lengths were drawn, in words, from the configuration that it kept; and the mean
before the clip to a longest length that leaves a wanted mean after it.

`python -m bench.paper.lengths` prints the latter for ShareGPT (conf/workload/kinds/sharegpt.yaml).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workloads.lengths.gamma import GammaLengths
from workloads.lengths.lognormal import LognormalLengths

FAMILIES = {kind.__name__: kind for kind in (LognormalLengths, GammaLengths)}
"""Of lengths that have a mean and a cv."""
STEPS = 40


def drawn_from(config: Mapping[str, Any]) -> str:
    """The distributions or the file of a run's `config.yaml`."""
    workload = config.get("workload", {})
    if workload.get("path"):
        return f"trace {Path(workload['path']).name}"
    parts = [_kind(kind) for kind in workload.get("kinds", {}).values()]
    return "; ".join(dict.fromkeys(parts)) or f"workload={workload.get('name')}"


def mean_after_clip(lengths: Mapping[str, Any]) -> float:
    """Mean in tokens of what a lognormal or gamma distribution of these settings gives, rounded and
    clipped as it draws."""
    settings = {key: value for key, value in lengths.items() if key != "_target_"}
    return FAMILIES[_family(lengths)](**settings).mean_tokens


def mean_before_clip(lengths: Mapping[str, Any], wanted_tokens: float) -> float:
    """The `mean_tokens` with which the lengths' other settings leave a mean of `wanted_tokens`
    after the clip, found by scaling it with what is missing."""
    tokens = wanted_tokens
    for _ in range(STEPS):
        share = wanted_tokens / mean_after_clip({**lengths, "mean_tokens": tokens})
        tokens *= share
        if abs(share - 1) < 1e-5:
            break
    return tokens


def has_spread(lengths: Any) -> bool:
    """Whether these are the settings of a distribution with a mean and a cv."""
    return isinstance(lengths, Mapping) and _family(lengths) in FAMILIES


def _family(lengths: Mapping[str, Any]) -> str:
    return str(lengths.get("_target_")).rpartition(".")[2]


def _kind(kind: Mapping[str, Any]) -> str:
    pairs = kind.get("pairs")
    if pairs:
        return f"pairs of {Path(pairs['path']).name}"
    return "; ".join(
        f"{part} {_distribution(lengths)}"
        for part, lengths in kind.items()
        if isinstance(lengths, Mapping) and _is_distribution(lengths)
    )


def _is_distribution(section: Mapping[str, Any]) -> bool:
    return str(section.get("_target_")).startswith("workloads.lengths.")


def _distribution(lengths: Mapping[str, Any]) -> str:
    """Such as `lognormal mean_tokens=166.17 cv=1.3 min_tokens=4 max_tokens=1024 (mean 161.3)`,
    with the mean after the clip."""
    name = str(lengths["_target_"]).split(".")[-2]
    settings = (f"{key}={_short(value)}" for key, value in lengths.items() if key != "_target_")
    after = f" (mean {mean_after_clip(lengths):.4g})" if has_spread(lengths) else ""
    return " ".join([name, *settings]) + after


def _short(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def main() -> None:
    """Prints ShareGPT's means before the clip, for those of the paper's figure 11 after it."""
    published_tokens = {
        "prompt": ("lognormal.LognormalLengths", 161.31, 1.3, 4),
        "output": ("gamma.GammaLengths", 337.99, 0.876, 1),
    }
    for part, (target, wanted, cv, least) in published_tokens.items():
        lengths = {"_target_": f"workloads.lengths.{target}", "cv": cv, "min_tokens": least,
                   "max_tokens": 1024}  # fmt: skip
        print(f"{part}: mean_tokens={mean_before_clip(lengths, wanted):.2f} for {wanted}")


if __name__ == "__main__":
    main()
