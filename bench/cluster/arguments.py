"""Which launcher was asked for, and what Hydra is told for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from bench.errors import SettingError

CHOICE = "hydra/launcher"
OURS = "fragbench"
"""The launcher that is bench/cells.py: a choice of it is left to Hydra."""

PLUG_INS = {
    "ray": ("hydra-ray-launcher", "ray"),
    "submitit_slurm": ("hydra-submitit-launcher", "slurm"),
    "submitit_local": ("hydra-submitit-launcher", "slurm"),
}
"""Packages that bring a launcher, and our extra with each."""

RAY = {
    # Else it asks for so much of a cluster that runs already, which Ray refuses.
    "++hydra.launcher.ray.init.object_store_memory": "null",
    # A job started again would find its folder taken, and the cause would be lost.
    "++hydra.launcher.ray.remote.max_retries": "0",
}
"""What Ray's launcher is told unless the user does."""


class Launcher(NamedTuple):
    """A launcher's name (None: ours), the arguments for Hydra with it, and all others."""

    name: str | None
    arguments: list[str]
    others: list[str]

    def sweep(self, settings: Mapping[str, str]) -> list[str]:
        """Hydra's arguments for a sweep with these overrides; the user's go before ours."""
        ours = dict(settings) | (RAY if self.name == "ray" else {})
        given = {argument.lstrip("+").partition("=")[0] for argument in self.arguments}
        added = [f"{key}={value}" for key, value in ours.items() if key.lstrip("+") not in given]
        return ["--multirun", *self.arguments, *added]


def read_launcher(argv: Sequence[str]) -> Launcher:
    """Parts arguments. Raises SettingError for a launcher whose package is missing."""
    names = [a.partition("=")[2] for a in argv if a.lstrip("+").startswith(f"{CHOICE}=")]
    if not names or names[-1] == OURS:
        return Launcher(None, [], list(argv))
    _check_plug_in(names[-1])
    own = [argument for argument in argv if _is_hydras(argument)]
    return Launcher(names[-1], own, [argument for argument in argv if argument not in own])


def _is_hydras(argument: str) -> bool:
    return argument.lstrip("+~").startswith(("hydra/", "hydra."))


def _check_plug_in(launcher: str) -> None:
    package, extra = PLUG_INS.get(launcher, (None, None))
    try:
        if package is not None:
            version(package)
    except PackageNotFoundError:
        raise SettingError(
            f"{CHOICE}={launcher} needs {package}, which is not installed: "
            f"pip install 'fragbench[{extra}]'."
        ) from None
