"""A folder of results, and its config.yaml and environment.json, from which a run can be repeated;
without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from bench.errors import SettingError
from bench.metrics.records import write_json, write_text

SECRET = "api_key"
"""Settings of this name, in any section, are shown to nobody."""


def make_folder(folder: Path) -> None:
    """Makes a folder of results, and those above it. Raises SettingError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unusable(folder, error.strerror or str(error)) from error


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Makes a folder, and takes it and those above it away again if nothing came into them. Raises
    SettingError."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    make_folder(folder)
    try:
        yield
    finally:
        with suppress(OSError):
            for each in made:
                each.rmdir()


def unusable(folder: Path, why: str) -> SettingError:
    """Says so of a folder that `out` names."""
    return SettingError(f"out={folder} cannot be made: {why}; choose another folder.")


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """config.yaml of a run."""
    text = yaml.safe_dump(_without_secrets(config), sort_keys=False, allow_unicode=True)
    write_text(folder / "config.yaml", text)


def write_environment(folder: Path, environment: dict[str, Any]) -> None:
    """environment.json: the machine, and the "command" as it was typed."""
    command = [hidden(argument) for argument in environment["command"]]
    write_json(folder / "environment.json", environment | {"command": command})


def hidden(argument: str) -> str:
    """An argument as others may see it."""
    key, equals, _ = argument.partition("=")
    return f"{key}=***" if equals and SECRET in argument else argument


def _without_secrets(settings: Any) -> Any:
    if isinstance(settings, dict):
        return {
            key: None if key == SECRET else _without_secrets(value)
            for key, value in settings.items()
        }
    return settings
