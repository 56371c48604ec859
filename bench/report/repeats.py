"""Runs that differ in nothing but their seed, as one: the report's rows."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace

from bench.report.frames import in_a_row
from bench.report.groups import name_parts
from bench.report.results import Run

VERSIONS = ("fragbench", "commit", "torch")


def gathered(runs: Sequence[Run]) -> list[Run]:
    """Repeats taken together, other runs as they are, in the order of their first.

    A run that stands for several has the settings and the timeline of the first, everybody's
    requests, and is completed where all are.
    """
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(identity(run, "seed"), []).append(run)
    return [run for group in groups.values() for run in _rows(group)]


def identity(run: Run, *apart_from: str) -> str:
    """A run's settings and versions but for some, as text to compare; of a run without a
    configuration, its folder."""
    if not run.config or run.restarts_s:
        return run.folder
    config = {key: value for key, value in run.settings.items() if key not in apart_from}
    versions = [run.environment.get(key) for key in VERSIONS]
    facts = [run.device, name_without(run.name, *apart_from), versions, config]
    return json.dumps(facts, sort_keys=True, default=str)


def name_without(name: str, *settings: str) -> str:
    """A run's name without the parts that give some settings, or what is below them.

    >>> name_without("backend=paged,+cost_factors.cuda_free_us=0.7,seed=1", "seed", "cost_factors")
    'backend=paged'
    """
    return ",".join(part for part in name_parts(name) if not _gives(part, settings))


def _gives(part: str, settings: Sequence[str]) -> bool:
    setting = part.partition("=")[0].lstrip("+")
    return "=" in part and any(f"{setting}.".startswith(f"{each}.") for each in settings)


def _rows(group: Sequence[Run]) -> Sequence[Run]:
    """One row; all of them where a seed came twice, which is the same run made again."""
    seeds = {run.seeds for run in group}
    return [_together(group)] if len(seeds) == len(group) > 1 else group


def _together(group: Sequence[Run]) -> Run:
    ordered = sorted(group, key=lambda run: (str(run.summary.get("seed")).zfill(9), run.folder))
    first = ordered[0]
    bad = [run for run in ordered if not run.completed]
    summary = dict(first.summary) | {"name": name_without(first.name, "seed")}
    if bad:
        summary |= {"status": bad[0].status, "cause": _causes(bad, len(ordered))}
    return replace(
        first,
        folder=os.path.commonpath([run.folder for run in ordered]) or ".",
        summary=summary,
        requests=in_a_row("requests", [(run.requests, 0.0) for run in ordered]),
        inter_token=in_a_row("inter_token", [(run.inter_token, 0.0) for run in ordered]),
        notes=[f"seed {run.seeds[0]}: {note}" for run in ordered for note in run.notes],
        repeats=tuple(ordered),
    )


def _causes(bad: Sequence[Run], count: int) -> str:
    said = "; ".join(dict.fromkeys(f"{run.cause}" for run in bad))
    return f"{len(bad)} of {count} repeats did not complete: {said}"
