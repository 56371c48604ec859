"""Environments that say that they have vLLM, for what is decided before it is imported."""

from __future__ import annotations

from pathlib import Path

import pytest


def pretend(
    version: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *, wants: str = "numpy"
) -> None:
    """Gives every Python that is started, and this one, an installed `vllm` of that version, which
    `wants` another package."""
    package = folder / "vllm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('only its name is here')\n")
    facts = folder / f"vllm-{version}.dist-info"
    facts.mkdir()
    named = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
    (facts / "METADATA").write_text(f"{named}Requires-Dist: {wants}\n")
    root = Path(__file__).parents[3]
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{root}")
    monkeypatch.syspath_prepend(str(folder))
