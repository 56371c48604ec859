"""`from=DIR`: the settings of an earlier run, as an experiment preset that Hydra composes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from bench.errors import SettingError

PREFIX = "from="
PRESET = "_earlier_run"
ITS_OWN = ("name", "out", "jobs")
"""Settings of the earlier run that a repetition does not take over."""
LISTS = ("sources",)
"""Groups with any number of options, none by default."""


def with_earlier_run(argv: Sequence[str], groups: Sequence[str], scratch: Path) -> list[str]:
    """Arguments in which `from=DIR` is replaced by a preset, written to `scratch`.

    What stands beside `from=` changes the earlier run's settings; a group=option there replaces
    the earlier run's whole section. Raises SettingError for a folder without a configuration.
    """
    given = [argument.removeprefix(PREFIX) for argument in argv if argument.startswith(PREFIX)]
    others = [argument for argument in argv if not argument.startswith(PREFIX)]
    if not given:
        return others
    if len(given) > 1:
        raise SettingError(f"{PREFIX} was given {len(given)} times: give one earlier run.")
    chosen = {
        group for group in (*groups, *LISTS) if any(a.startswith(f"{group}=") for a in others)
    }
    left_out = chosen.union(ITS_OWN)
    settings = {key: value for key, value in _read(given[0]).items() if key not in left_out}
    # The groups' defaults must go, or keys of theirs would stay beside the earlier run's.
    kept = [group for group in groups if group not in chosen]
    preset = {"defaults": [{f"override /{group}": None} for group in kept]} | settings
    (scratch / "experiment").mkdir()
    text = "# @package _global_\n" + yaml.safe_dump(preset, sort_keys=False, allow_unicode=True)
    (scratch / "experiment" / f"{PRESET}.yaml").write_text(text, encoding="utf-8")
    return ["--config-dir", str(scratch), *others, f"experiment={PRESET}"]


def _read(place: str) -> dict[str, object]:
    path = Path(place).expanduser()
    path = path / "config.yaml" if path.is_dir() else path
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        settings = None
    if not isinstance(settings, dict) or "backend" not in settings:
        raise SettingError(
            f"from={place} is no earlier run: give the folder of one, or its config.yaml."
        )
    return settings
