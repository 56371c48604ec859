"""Hydra's and OmegaConf's errors, as one sentence that names the setting and what is allowed."""

from __future__ import annotations

import re

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

HYDRA_ERRORS = (HydraException, OmegaConfBaseException)


def sentence(error: Exception) -> str:
    """One line for a user, whatever the library printed over several."""
    text = str(error)
    cause = f"{text} {error.__cause__ or ''}"
    for pattern, template in _KNOWN:
        match = pattern.search(cause)
        if match:
            found = {name: " ".join(value.split()) for name, value in match.groupdict().items()}
            if "options" in found:
                found["options"] = ", ".join(found["options"].split())
            return template.format(**found)
    return " ".join(text.split())


_KNOWN = [
    (
        re.compile(r"Could not find '(?P<group>[^']+)/(?P<option>[^'/]+)'\s+Available options in "
                   r"'[^']+':\s*(?P<options>(?:\t\S+\s*)+)"),
        "{group}={option} is unknown: choose one of {options}.",
    ),
    (
        re.compile(r"Could not override '(?P<key>[^']+)'\..*?No match in the defaults list", re.S),
        "{key} is no setting and no group: `fragbench run --cfg job` shows all of them.",
    ),
    (
        re.compile(r"Could not override '(?P<key>[^']+)'", re.S),
        "{key} is no setting: `fragbench run --cfg job` shows all of them.",
    ),
    (
        re.compile(r"Key '(?P<key>[^']+)' (?:not in|is not in|not found).*?"
                   r"full_key: (?P<full>\S+)", re.S),
        "{full} is no setting: `fragbench run --cfg job` shows all of them.",
    ),
    (
        re.compile(r"Value '(?P<value>.*?)' .*?could not be converted to (?P<kind>\w+)"
                   r".*?full_key: (?P<key>\S+)", re.S),
        "{key}={value} has the wrong type: give a value of type {kind}.",
    ),
]  # fmt: skip
