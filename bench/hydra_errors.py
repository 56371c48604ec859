"""Hydra's and OmegaConf's errors, as one sentence that names the setting and what is allowed.

The libraries have few shapes of message; each has a pattern here. What matches none is shown as
the library's first line, with the setting in front if the library names it.
"""

from __future__ import annotations

import re

from hydra.errors import HydraException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException

HYDRA_ERRORS = (HydraException, OmegaConfBaseException, ValueError)
"""What composing raises. A few of Hydra's own checks are plain ValueErrors."""

_KINDS = {"Integer": "whole number", "Float": "number", "bool": "true or false"}
_ALL = (
    "`fragbench run --cfg job` shows all of them (for a key that only some options of a swept "
    "group have, write ++key=...)."
)


def sentence(error: Exception) -> str:
    """One line for a user, whatever the library printed over several."""
    if isinstance(error, OverrideParseException):
        return (
            f"'{error.override}' cannot be read: write group=option or key=value, and put values "
            "with brackets, spaces or quotes in double quotes within the shell's single ones."
        )
    text = f"{error}\n{error.__cause__ or ''}"
    for pattern, template in _KNOWN:
        match = pattern.search(text)
        if match:
            return template.format(**_readable(match.groupdict()))
    return _first_line(error)


def _readable(found: dict[str, str]) -> dict[str, str]:
    if "options" in found:
        found["options"] = ", ".join(found["options"].split())
    if "kind" in found:
        found["kind"] = _KINDS.get(found["kind"], found["kind"])
    return found


def _first_line(error: Exception) -> str:
    setting = _FULL_KEY.search(str(error))
    first = re.sub(r"\AIn '[^']*': ", "", str(error)).strip().partition("\n")[0]
    return (f"{setting[1]}: " if setting and setting[1] else "") + first.rstrip(".") + "."


_FULL_KEY = re.compile(r"full_key: (\S*)")
_KNOWN = [
    (
        re.compile(r"Could not find '(?P<group>[^']+)/(?P<option>[^'/]*)'\s+"
                   r"Available options in '[^']+':(?P<options>(?:\n\t\S+)+)"),
        "{group}={option} is unknown: choose one of {options}.",
    ),
    (
        re.compile(r"Could not (?:find|load) '(?P<group>[^'/]+)/(?P<option>[^']+)'"),
        "{group}={option} is unknown: `fragbench run --help` lists the options.",
    ),
    (
        re.compile(r"(?:Ambiguous value for argument|Sweep parameters) '(?P<override>[^']+)'"),
        "{override} has several values: use `fragbench matrix {override}` to run each of them, or "
        "quote it if it is one value with commas, as in \"alloc_conf='a:1,b:2'\".",
    ),
    (
        re.compile(r"Could not override[^']* '(?P<key>sources\.(?P<source>\w+)\.[^']*)'"
                   r".*?Key '(?P=source)' is not in", re.S),
        "{key} is a setting of a source that is off: choose it too, as in sources=[{source}].",
    ),
    (
        re.compile(r"Could not (?:override|delete)[^']* '(?P<key>[^']*)'"),
        "'{key}' is no setting: " + _ALL,
    ),
    (
        re.compile(r"Key '[^']+' (?:not in|is not in).*?full_key: (?P<key>\S+)", re.S),
        "'{key}' is no setting: " + _ALL,
    ),
    (
        re.compile(r"Missing mandatory value: (?P<key>\S+)"),
        "{key} has no value: give it one, as in {key}=..., or take ~{key} away.",
    ),
    (
        re.compile(r"Value '(?P<value>.*?)' .*?could not be converted to (?P<kind>\w+)"
                   r".*?full_key: (?P<key>\S+)", re.S),
        "{key}={value} has the wrong type: give a {kind}.",
    ),
    (
        re.compile(r"Value '(?P<value>.*?)' is not a valid (?P<kind>\w+).*?full_key: (?P<key>\S+)",
                   re.S),
        "{key}={value} has the wrong type: give {kind}.",
    ),
    (
        re.compile(r"Config group override must be a string"),
        "a group=... on the command line names no option: `fragbench run --help` lists them "
        "(sources=[lora] is one of several, sources=[] none).",
    ),
    (
        re.compile(r"Error merging override (?P<override>[^\n]+)\n.*is not Optional"),
        "{override} cannot be used: it must have a value.",
    ),
    (
        re.compile(r"Error merging override (?P<override>[^\n]+)\n(?P<why>[^\n]+)"),
        "{override} cannot be used: {why}.",
    ),
]  # fmt: skip
