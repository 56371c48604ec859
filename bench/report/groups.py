"""Which runs belong side by side, in what order, and under which names."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from bench.report.palette import backend_order
from bench.report.quantities import Quantity
from bench.report.results import NOT_OF_THE_RUN, Run

MEMORY_SIDE = ("backend", "alloc_conf")


ALIKE = 0.01
"""Values closer than this share of the best are marked with it: a model's noise, not a ranking."""


def by_workload(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs of each workload, workloads by name, runs in the order of their backends."""
    ordered = sorted(runs, key=lambda run: (run.workload, backend_order(run.backend), run.folder))
    groups: dict[str, list[Run]] = {}
    for run in ordered:
        groups.setdefault(run.workload, []).append(run)
    return groups


def slugs(workloads: Iterable[str]) -> dict[str, str]:
    """Each workload as part of a file name, unlike the others'."""
    found: dict[str, str] = {}
    for workload in workloads:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", workload).strip("-.")[:60] or "workload"
        taken = {slug.lower() for slug in found.values()}
        numbered = (plain if number == 1 else f"{plain}-{number}" for number in count(1))
        found[workload] = next(slug for slug in numbered if slug.lower() not in taken)
    return found


def comparable(runs: Iterable[Run]) -> list[list[Run]]:
    """Completed runs in groups that differ in nothing but the memory side.

    Two runs are in one group when workload, model, GPU, device, kind of time, seeds and every other
    setting are equal but for the backend's own and the allocator's.
    """
    groups: dict[str, list[Run]] = {}
    for run in (r for rs in by_workload(runs).values() for r in rs if r.completed):
        groups.setdefault(conditions(run), []).append(run)
    return list(groups.values())


def labels(runs: Sequence[Run]) -> list[str]:
    """A short name for each of one workload's runs, unique among them: the backend; where several
    share it, also what their names do not have in common; where that is the same too, the folder.
    """
    names = [", ".join([run.backend, *_own_parts(run, runs)]) for run in runs]
    repeated = {name for name in names if names.count(name) > 1}
    return [
        f"{name} ({run.folder})" if name in repeated else name
        for name, run in zip(names, runs, strict=True)
    ]


def wrapped(name: str, width: int = 16) -> str:
    """`name` in lines of at most `width` characters, broken after `_,/=` where it can be."""
    for mark in "_,/=":
        name = name.replace(mark, mark + "\u200b ")
    lines = textwrap.wrap(name, width + 1, break_on_hyphens=True) or [""]
    return "\n".join(line.replace("\u200b ", "").replace("\u200b", "") for line in lines)


def best(quantity: Quantity, group: Sequence[Run]) -> set[str]:
    """Folders of the runs with the group's best value and of those within `ALIKE` of it; none
    where all are."""
    if quantity.better is None:
        return set()
    values = {run.folder: value for run in group if (value := quantity.read(run)) is not None}
    if not values:
        return set()
    top = (max if quantity.better == "higher" else min)(values.values())
    alike = {folder for folder, v in values.items() if abs(v - top) <= ALIKE * abs(top)}
    return alike if len(alike) < len(values) else set()


def common(values: Iterable[str]) -> str:
    """What a label is among several runs: each value once, unknown ones only if all are."""
    known = sorted({value for value in values if value != "unknown"})
    return ", ".join(known) or "unknown"


def times(runs: Iterable[Run]) -> str:
    """How the runs' times came about: `modelled`, `measured`, or both."""
    return " and ".join(sorted({run.time for run in runs if run.time != "unknown"})) or "unknown"


def _parts(name: str) -> list[str]:
    return name.split(",")


def _own_parts(run: Run, runs: Sequence[Run]) -> list[str]:
    """The settings in a run's name that not every run of its backend has."""
    siblings = [set(_parts(other.name)) for other in runs if other.backend == run.backend]
    shared = set.intersection(*siblings)
    own = [part for part in _parts(run.name) if "=" in part and part not in shared]
    own = [part for part in own if not part.startswith("backend=")]
    return [part.removeprefix("backend.").removeprefix("workload.") for part in own]


def conditions(run: Run, *, apart_from: Sequence[str] = ()) -> str:
    """Everything but the memory side, as text to compare; `apart_from` are settings that do not
    count either, such as workload.rate_rps."""
    unlike = ("seed", *MEMORY_SIDE, *apart_from)
    parts = [part for part in _parts(run.name) if "=" in part]
    other = sorted(part for part in parts if not part.startswith(unlike))
    config = {k: v for k, v in run.config.items() if k not in (*unlike, *NOT_OF_THE_RUN)}
    for setting in apart_from:
        section, _, key = setting.partition(".")
        if key and isinstance(config.get(section), Mapping):
            config[section] = {k: v for k, v in config[section].items() if k != key}
    facts = [run.workload, run.model, run.gpu, run.device, run.time, run.seeds]
    return json.dumps([facts, other, config], sort_keys=True, default=str)
