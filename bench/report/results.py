"""Finds run folders and reads them, whatever state a run left them in.

A folder is a run when it holds `summary.json`, or `soak.json` (its segments are one run), or
`config.yaml` and no runs below it (the folder of a matrix may hold a `config.yaml` of its own).
What cannot be read is left out and said in `Run.notes`; nothing here raises for a file that a
killed run left half-written.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from bench.errors import SettingError
from bench.report.frames import PartFiles, find_parts, in_a_row
from bench.report.soaks import SOAK, moved, read_segments

SUMMARY = "summary.json"
CONFIG = "config.yaml"
INCIDENTS = "incidents.jsonl"
OUTCOMES = ("completed", "failed", "cancelled", "rejected", "unfinished")
NOT_OF_THE_RUN = ("name", "out", "jobs", "dashboard")
"""Settings that change nothing of what a run does."""
OF_AN_ENGINE = ("vllm",)
"""Sections that only the engine of that name reads."""
NO_SUMMARY = "the run ended before it wrote summary.json"


@dataclass(frozen=True)
class Run:
    """One run folder. `folder` is its path below the folder that was asked for."""

    path: Path
    folder: str
    summary: Mapping[str, Any]
    config: Mapping[str, Any]
    config_text: str
    environment: Mapping[str, Any]
    incident_files: tuple[tuple[Path, float], ...]
    """Files of incidents, each with when its times begin on the run's clock."""
    requests: PartFiles
    timeline: PartFiles
    unfilled: PartFiles
    inter_token: PartFiles
    notes: list[str] = field(default_factory=list)
    restarts_s: tuple[float, ...] = ()
    """Where a soak went on with another worker."""
    repeats: tuple[Run, ...] = ()
    """Of a run that stands for several that differ in their seeds alone: these."""

    @property
    def each(self) -> tuple[Run, ...]:
        """The runs that it stands for, itself where it is one."""
        return self.repeats or (self,)

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """What it was told and followed: its configuration without what changes nothing, without
        the sections of other engines, and without what is off (null, false, 0 or empty): a run from
        before there was a setting is like one that leaves it off."""
        engine = self.config.get("engine")
        name = engine.get("name") if isinstance(engine, Mapping) else None
        others = [section for section in OF_AN_ENGINE if section != name]
        unused = (*NOT_OF_THE_RUN, *others)
        return _what_is_on({k: v for k, v in self.config.items() if k not in unused})

    @property
    def seeds(self) -> tuple[Any, ...]:
        """Of all repeats."""
        return tuple(run.summary.get("seed", run.config.get("seed")) for run in self.each)

    @property
    def cost_factors(self) -> Mapping[str, float]:
        """Constants of the cost model that were varied, and by how much."""
        factors = self.config.get("cost_factors")
        return factors if isinstance(factors, Mapping) else {}

    @property
    def name(self) -> str:
        return self._text("name") or self.path.name

    @property
    def backend(self) -> str:
        return self._label("backend")

    @property
    def engine(self) -> str:
        return self._label("engine")

    @property
    def workload(self) -> str:
        return self._label("workload")

    @property
    def model(self) -> str:
        return self._label("model")

    @property
    def gpu(self) -> str:
        return self._label("gpu")

    @property
    def device(self) -> str:
        return self._label("device")

    @property
    def time(self) -> str:
        """`modelled` or `measured`; `unknown` where the summary is missing."""
        return self._text("time") or "unknown"

    @property
    def status(self) -> str:
        """`completed`, `incomplete` or `failed`; without a summary always `incomplete`."""
        return self._text("status") or "incomplete"

    @property
    def completed(self) -> bool:
        return self.status == "completed"

    @property
    def cause(self) -> str | None:
        """Why the run is not completed, in a sentence; None for a completed one."""
        if self.completed:
            return None
        return self._text("cause") or (NO_SUMMARY if not self.summary else "no cause was recorded")

    def number(self, *keys: str) -> float | None:
        """The summary's number at this path of keys, of repeats their mean; None where null, absent
        or not finite."""
        return mean_of(self, lambda run: run._number(keys))

    def _number(self, keys: tuple[str, ...]) -> float | None:
        found: Any = self.summary
        for key in keys:
            if not isinstance(found, Mapping):
                return None
            found = found.get(key)
        if isinstance(found, bool) or not isinstance(found, int | float):
            return None
        return float(found) if math.isfinite(found) else None

    @cached_property
    def incidents(self) -> tuple[Mapping[str, Any], ...]:
        """Every line of its incidents, read when asked for: hours of them are large."""
        if self.repeats:
            return tuple(incident for run in self.repeats for incident in run.incidents)
        return tuple(
            moved(incident, start_s)
            for path, start_s in self.incident_files
            for incident in _read_lines(path, self.notes)
        )

    @cached_property
    def request_counts(self) -> Mapping[str, int]:
        """Requests by outcome, and `sent`, of all repeats. Without a summary: what the request
        files hold, which has no `sent`, since requests then still open were never written."""
        if self.repeats:
            return _sums([run.request_counts for run in self.repeats])
        if self.summary:
            known = {key: self.number("requests", key) for key in ("sent", *OUTCOMES)}
            return {key: int(value) for key, value in known.items() if value is not None}
        rows = self.requests.read(("status",), self.notes)["status"].dropna()
        return dict(Counter(str(status) for status in rows if status in OUTCOMES))

    def request_causes(self, most: int = 3) -> list[str]:
        """The commonest causes among requests that were not completed, with their counts; those
        that differ in numbers alone are one, and the first stands for all."""
        if not any(self.request_counts.get(key) for key in OUTCOMES[1:]):
            return []
        rows = self.requests.read(("status", "cause"), self.notes)
        pairs = zip(rows["status"], rows["cause"], strict=True)
        causes = [f"{s}: {c}" for s, c in pairs if s != "completed" and isinstance(c, str)]
        kinds = Counter(_DIGITS.sub("0", cause) for cause in causes)
        first = {_DIGITS.sub("0", cause): cause for cause in reversed(causes)}
        return [f"{first[kind]} ({count:,})" for kind, count in kinds.most_common(most)]

    def log_tail(self, lines: int = 12) -> str:
        """The last lines of `run.log`; empty where there is none."""
        try:
            text = (self.path / "run.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _text(self, key: str) -> str | None:
        value = self.summary.get(key)
        return str(value) if value not in (None, "") else None

    def _label(self, key: str) -> str:
        return self._text(key) or _configured_name(self.config, key) or "unknown"


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe one, in C where PyYAML has it: ten times as fast."""
_DIGITS = re.compile(r"\d+")


def mean_of(run: Run, read: Callable[[Run], float | None]) -> float | None:
    """A number of a run, of repeats the mean; None unless all have it."""
    if not run.repeats:
        return read(run)
    values = [read(each) for each in run.repeats]
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def _what_is_on(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those that are off, and without sections where all are.

    >>> _what_is_on({"gpu": {"name": "a100", "graph_mib": 0.0}, "sources": {"lora": None}})
    {'gpu': {'name': 'a100'}}
    """
    kept = {
        key: _what_is_on(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
    }
    return {key: value for key, value in kept.items() if value}


def flat(settings: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """Settings by their dotted names, as text."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}.")
        else:
            found[name] = value if isinstance(value, str) else json.dumps(value, default=str)
    return found


def _sums(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Of what all of them count."""
    shared = set.intersection(*(set(each) for each in counts))
    return {key: sum(each[key] for each in counts) for key in counts[0] if key in shared}


def load_runs(directory: Path) -> list[Run]:
    """Every run in `directory`, at any depth, ordered by its path.

    Raises SettingError where `directory` is not a folder or holds no run.
    """
    if not directory.is_dir():
        raise SettingError(
            f"report: {directory} is not a folder; give the folder of a run or one above it."
        )
    runs = [_load_run(path, directory) for path in _run_folders(directory)]
    if not runs:
        raise SettingError(
            f"report: {directory} holds no run (a folder with {SUMMARY} or {CONFIG}); "
            "give a folder that `fragbench run` or `fragbench matrix` wrote."
        )
    return runs


def _run_folders(directory: Path) -> Iterator[Path]:
    """Run folders in `directory`, by path. Hidden folders (Hydra's `.hydra`) are passed over."""
    if (directory / SUMMARY).is_file() or (directory / SOAK).is_file():
        yield directory
        return
    below = sorted(p for p in _listed(directory) if p.is_dir() and not p.name.startswith("."))
    found = False
    for path in below:
        if path.is_symlink():
            continue
        for run in _run_folders(path):
            found = True
            yield run
    if not found and (directory / CONFIG).is_file():
        yield directory


def _listed(directory: Path) -> list[Path]:
    try:
        return [directory / name for name in os.listdir(directory)]
    except OSError:
        return []


def _load_run(path: Path, root: Path) -> Run:
    if (path / SOAK).is_file():
        return _load_soak(path, root)
    notes: list[str] = []
    config_text, config = _read_config(path / CONFIG, notes)
    return Run(
        path=path,
        folder=path.relative_to(root).as_posix(),
        summary=_read_json(path / SUMMARY, notes),
        config=config,
        config_text=config_text,
        environment=_read_json(path / "environment.json", notes),
        incident_files=((path / INCIDENTS, 0.0),),
        requests=find_parts(path, "requests", notes),
        timeline=find_parts(path, "timeline", notes),
        unfilled=find_parts(path, "unfilled", notes),
        inter_token=find_parts(path, "inter_token", []),  # a run that was cut short has none
        notes=notes,
    )


def _load_soak(path: Path, root: Path) -> Run:
    """A soak as one run: rows of all segments, with times on its clock, and the summary of all."""
    notes: list[str] = []
    config_text, config = _read_config(path / CONFIG, notes)
    segments = read_segments(path, notes)

    def parts(kind: str) -> PartFiles:
        return in_a_row(kind, [(find_parts(s.path, kind, notes), s.start_s) for s in segments])

    first = segments[0].path if segments else path
    return Run(
        path=path,
        folder=path.relative_to(root).as_posix(),
        summary=_read_json(path / SUMMARY, notes),
        config=config,
        config_text=config_text,
        environment=_read_json(first / "environment.json", notes),
        incident_files=tuple((segment.path / INCIDENTS, segment.start_s) for segment in segments),
        notes=notes,
        restarts_s=tuple(segment.start_s for segment in segments[1:]),
        requests=parts("requests"),
        timeline=parts("timeline"),
        unfilled=parts("unfilled"),
        inter_token=in_a_row(
            "inter_token", [(find_parts(s.path, "inter_token", []), 0.0) for s in segments]
        ),
    )


def _read_json(path: Path, notes: list[str]) -> Mapping[str, Any]:
    """The object in `path`; empty, with a note, where there is none that can be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        notes.append(f"{path.name} is missing")
        return {}
    except (OSError, ValueError):
        notes.append(f"{path.name} could not be read")
        return {}
    if isinstance(value, dict):
        return value
    notes.append(f"{path.name} does not hold an object")
    return {}


def _read_config(path: Path, notes: list[str]) -> tuple[str, Mapping[str, Any]]:
    """`config.yaml` as written and as parsed."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        value = yaml.load(text, Loader=_LOADER)
    except FileNotFoundError:
        notes.append(f"{path.name} is missing")
        return "", {}
    except OSError:
        notes.append(f"{path.name} could not be read")
        return "", {}
    except yaml.YAMLError:
        notes.append(f"{path.name} is not whole: shown as it is, not used")
        return text, {}
    return text, value if isinstance(value, dict) else {}


def _read_lines(path: Path, notes: list[str]) -> tuple[Mapping[str, Any], ...]:
    """The objects of a JSON Lines file. No file means no incident."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    found, broken = [], 0
    for line in filter(str.strip, text.splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if isinstance(value, dict):
            found.append(value)
        else:
            broken += 1
    if broken:
        notes.append(f"{path.name}: {broken} line(s) could not be read and were left out")
    return tuple(found)


def _configured_name(config: Mapping[str, Any], key: str) -> str | None:
    """The name of a config group: a plain value, its `name`, or the module of its `_target_`."""
    value = config.get(key)
    if isinstance(value, dict):
        target = str(value.get("_target_", "")).split(".")
        value = value.get("name") or (target[-2] if len(target) > 1 else None)
    return str(value) if value else None
