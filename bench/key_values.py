"""Settings of commands that are not Hydra's: key=value, each known and each with a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.errors import SettingError


def read_key_values(
    command: str, argv: Sequence[str], examples: Mapping[str, str]
) -> dict[str, str]:
    """The given values by setting, the last where one is given twice. `examples` has a value of
    each setting, to show how it is given. Raises SettingError."""
    given = {}
    for argument in argv:
        name, equals, value = argument.partition("=")
        if name not in examples:
            known = ", ".join(f"{each}=" for each in examples)
            raise SettingError(f"{command}: {argument!r} is no setting: use {known}.")
        if not equals or not value:
            raise SettingError(f"{name} has no value: give it one, as in {name}={examples[name]}.")
        given[name] = value
    return given
