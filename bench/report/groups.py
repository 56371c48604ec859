"""Which runs belong side by side, in what order, and under which names."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from bench.report.palette import backend_order
from bench.report.results import Run

MEMORY_SIDE = ("backend", "alloc_conf", "engine.name", "vllm")
"""Settings, and sections of them, of who lays memory out: what is compared. Of an engine that is
its name alone. How it batches is everybody's: runs that differ there are kept apart."""

_SIDE_IN_NAMES = (*MEMORY_SIDE, "engine=")

_BEFORE_A_SETTING = re.compile(r",(?=[^,=]+=)")


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
    setting are equal but for MEMORY_SIDE.
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


def common(values: Iterable[str]) -> str:
    """What a label is among several runs: each value once, unknown ones only if all are."""
    known = sorted({value for value in values if value != "unknown"})
    return ", ".join(known) or "unknown"


def times(runs: Iterable[Run]) -> str:
    """How the runs' times came about: `modelled`, `measured`, or both."""
    return " and ".join(sorted({run.time for run in runs if run.time != "unknown"})) or "unknown"


def name_parts(name: str) -> list[str]:
    """The settings that a run's name is made of; a value may have commas of its own.

    >>> name_parts("backend=paged,alloc_conf='a:1,b:2'")
    ['backend=paged', "alloc_conf='a:1,b:2'"]
    """
    return _BEFORE_A_SETTING.split(name)


def places(groups: Sequence[Sequence[Run]]) -> list[str]:
    """A name for each group of comparable runs: its workload and whatever else sets it apart, and
    its kind of time."""
    facts = [_facts(group) for group in groups]
    common = set.intersection(*map(set, facts)) if len(facts) > 1 else set()
    names = []
    for group, own in zip(groups, facts, strict=True):
        apart = [fact for fact in own if fact not in common] if common else []
        named = dict.fromkeys([group[0].workload, *apart])
        names.append(", ".join([*named, f"{times(group)} time"]))
    return names


def _facts(group: Sequence[Run]) -> list[str]:
    """Of a group of comparable runs; their engine where it is the same for all."""
    first = group[0]
    own = set.intersection(*(set(name_parts(run.name)) for run in group))
    parts = [part for part in name_parts(first.name) if "=" in part and part in own]
    known = (*MEMORY_SIDE, "workload=", "model=", "gpu=")
    settings = [part.removeprefix("workload.") for part in parts if not part.startswith(known)]
    return [first.workload, first.model, first.gpu, first.device, *settings]


def _own_parts(run: Run, runs: Sequence[Run]) -> list[str]:
    """The settings in a run's name that not every run of its backend has."""
    siblings = [set(name_parts(other.name)) for other in runs if other.backend == run.backend]
    shared = set.intersection(*siblings)
    own = [part for part in name_parts(run.name) if "=" in part and part not in shared]
    own = [part for part in own if not part.startswith("backend=")]
    return [part.removeprefix("backend.").removeprefix("workload.") for part in own]


def conditions(run: Run, *, apart_from: Sequence[str] = ()) -> str:
    """Everything but the memory side, as text to compare; `apart_from` are settings that do not
    count either, such as workload.rate_rps."""
    unlike = ("seed", *_SIDE_IN_NAMES, *apart_from)
    parts = [part for part in name_parts(run.name) if "=" in part]
    other = sorted(part for part in parts if not part.startswith(unlike))
    settings = _without(run.settings, ("seed", *MEMORY_SIDE, *apart_from))
    facts = [run.workload, run.model, run.gpu, run.device, run.time, run.seeds]
    return json.dumps([facts, other, settings], sort_keys=True, default=str)


def memory_side(run: Run) -> str:
    """The rest: the memory side, as text to compare."""
    own = {key: run.settings.get(key) for key in MEMORY_SIDE if "." not in key}
    return json.dumps([run.backend, run.engine, own], sort_keys=True, default=str)


def _without(settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Settings but for those of these names, dotted below the top."""
    kept = {key: value for key, value in settings.items() if key not in names}
    for name in names:
        section, _, key = name.partition(".")
        if key and isinstance(kept.get(section), Mapping):
            kept[section] = {k: v for k, v in kept[section].items() if k != key}
    return kept
