"""Runs this folder's jobs, and the settings of conf/sources/."""

from __future__ import annotations

from typing import Any

import yaml

from bench.experiment import CONF_FOLDER
from tests.virtual_gpu import run_on_virtual_gpu

NAMES = sorted(path.stem for path in (CONF_FOLDER / "sources").glob("*.yaml"))
EXPANDABLE = "expandable_segments:True"


def settings(name: str, **changes: Any) -> dict[str, Any]:
    """A source's settings as conf/sources/ has them, with changes."""
    file = CONF_FOLDER / "sources" / f"{name}.yaml"
    given: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return given[name] | changes


def job(name: str, *, alloc_conf: str = "", **payload: Any) -> Any:
    target = f"tests.bench.sources.source_jobs:{name}"
    return run_on_virtual_gpu(target, payload, alloc_conf=alloc_conf)
