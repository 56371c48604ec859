"""`fragbench incident DIR`: why allocations failed in the runs of a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.errors import SettingError
from bench.incidents.advice import advice
from bench.incidents.episodes import count
from bench.incidents.report import owner, report
from bench.key_values import read_key_values
from bench.metrics.records import write_json, write_text
from bench.report.results import Run, load_runs

NAME = "incident"
ROLES = ("platform", "inference", "application")
EXAMPLES = {f"owner.{role}": f"{role}-team" for role in ROLES} | {"out": "results/incident"}

USAGE = """\
usage: fragbench incident DIR [owner.platform=NAME] [owner.inference=NAME]
                              [owner.application=NAME] [out=DIR]

Why allocations failed in a run, in all runs of a folder, or in a soak that still goes on: what,
when, which layer (capacity, kv_policy, allocator, workspace), the evidence, what to change, what
would not help, and who owns it. The owners' names are settings. With out=DIR the report is also
written to incident.md, and what it is made of to incident.json.

  fragbench incident results/matrix
  fragbench incident results/soak owner.platform=infra owner.inference=serving out=results/report
"""


def main(argv: list[str]) -> int:
    """`fragbench incident`: 0. Raises SettingError."""
    if any(argument in ("-h", "--help") for argument in argv):
        print(USAGE, end="")
        return 0
    if not argv or ("=" in argv[0] and not Path(argv[0]).is_dir()):  # as a sweep's cells are called
        raise SettingError(f"fragbench {NAME} needs a folder: give one of a run, or one above it.")
    given = read_key_values(NAME, argv[1:], EXAMPLES)
    owners = {role: given.get(f"owner.{role}", role) for role in ROLES}
    found = [(run, count(run)) for run in _runs(Path(argv[0]))]
    text = report(found, owners)
    if "out" in given:
        _write(Path(given["out"]), text, [_told(run, counts, owners) for run, counts in found])
    print(text, end="")
    return 0


def _runs(directory: Path) -> list[Run]:
    try:
        return load_runs(directory)
    except SettingError as error:
        raise SettingError(str(error).replace("report:", f"{NAME}:", 1)) from error


def _told(run: Run, counts: Mapping[str, Any], owners: Mapping[str, str]) -> dict[str, Any]:
    """What is counted, with owners and advice."""
    layers = {
        layer: {"owner": owner(layer, owners), **found, **advice(layer, found, run)._asdict()}
        for layer, found in counts["layers"].items()
    }
    return {**counts, "layers": layers, "notes": run.notes}


def _write(folder: Path, text: str, runs: list[dict[str, Any]]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "incident.md", text)
        write_json(folder / "incident.json", {"runs": runs})
    except OSError as error:
        raise SettingError(
            f"out={folder} cannot be written: {error.strerror}; choose another folder."
        ) from error
