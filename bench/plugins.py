"""Makes what a plug-in group's section names (a backend, a workload)."""

from __future__ import annotations

import re
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from bench.errors import SettingError


def make_all(sections: dict[str, dict[str, Any]], group: str) -> dict[str, Any]:
    """The objects of a group of which several options may be chosen, by their names."""
    return {name: make(section, group, name) for name, section in sections.items()}


def make(section: dict[str, Any], group: str, name: str = "") -> Any:
    """The object that a plug-in section names. Raises SettingError, or the plug-in's own error
    with the place of a nested setting in front."""
    if "_target_" not in section:
        raise SettingError(
            f"{group} has no _target_, the class to make: choose an option of conf/{group}/."
        )
    try:
        return instantiate(section, _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__
        if not isinstance(cause, TypeError | ValueError):
            raise SettingError(f"{group}: {' '.join(str(error).split())}") from error
        place = ".".join(filter(None, (group, name, _full_key(error))))
        if isinstance(cause, TypeError):
            raise SettingError(f"{_wrong_keyword(place, cause)} (conf/{group}/).") from cause
        message = str(cause)
        raise type(cause)(message if f"{group}." in message else f"{place}: {message}") from error


def _wrong_keyword(place: str, error: TypeError) -> str:
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if unknown:
        return f"{place}.{unknown[1]} is no setting: remove it, or spell it as the group's files do"
    return f"{place}: {error}: give it, as the group's files do"


def _full_key(error: InstantiationException) -> str:
    """The place below the section, which Hydra gives in its last line."""
    *_, last = str(error).splitlines()
    return last.removeprefix("full_key: ") if last.startswith("full_key: ") else ""
