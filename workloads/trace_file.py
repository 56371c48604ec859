"""A recorded trace on disk: found, recognised, checked once, then read as often as needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from workloads.arrivals.base import NS_PER_S
from workloads.base import WorkloadError
from workloads.formats.base import Line, MalformedLineError, TraceFormat, TraceRow
from workloads.formats.registry import FORMATS, by_name, names, recognise
from workloads.settings import optional_duration_s, optional_requests, refusal, text

TRACES_VARIABLE = "FRAGBENCH_TRACES"
_FIRST_LINE_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """What one reading of the whole selection found. `span_ns` is from first to last arrival."""

    requests: int
    span_ns: int


class TraceFile:
    """The part of a trace that a run uses: at most `limit` requests of the first `duration_s`.

    Making one reads that part once, keeping one row at a time: a malformed line, or a time before
    the line before, is a WorkloadError before anything has run. Blank lines are skipped; the last
    line counts whether or not it ends. `owner` is where its settings are, for messages.
    """

    def __init__(
        self,
        path: str | None,
        format: str,  # noqa: A002 (the setting's name)
        *,
        limit: int | None = None,
        duration_s: float | None = None,
        owner: str = "workload",
    ) -> None:
        self._limit = optional_requests(f"{owner}.limit", limit)
        self._duration_s = optional_duration_s(f"{owner}.duration_s", duration_s)
        self.path = find_trace(f"{owner}.path", path)
        self._format = self._choose_format(f"{owner}.format", format)
        self.summary = self._read_once()

    @property
    def rate_rps(self) -> float | None:
        """(requests - 1) / span: None for a single request, or for all of them at one moment."""
        span_ns = self.summary.span_ns
        return (self.summary.requests - 1) * NS_PER_S / span_ns if span_ns else None

    def rows(self) -> Iterator[TraceRow]:
        """The selected rows in order, `time_ns` counted from the first one's arrival."""
        end_ns = None if self._duration_s is None else self._duration_s * NS_PER_S
        for row in islice(self._rows_from_zero(), self._limit):
            if end_ns is not None and row.time_ns >= end_ns:
                return
            yield row

    def _read_once(self) -> TraceSummary:
        requests, span_ns = 0, 0
        for row in self.rows():
            requests, span_ns = requests + 1, row.time_ns
        if requests == 0:
            raise WorkloadError(f"{self.path}: the trace has no requests; give one that has some.")
        return TraceSummary(requests, span_ns)

    def _rows_from_zero(self) -> Iterator[TraceRow]:
        first_ns = previous_ns = None
        try:
            for row in self._format.rows(numbered_lines(self.path)):
                if previous_ns is not None and row.time_ns < previous_ns:
                    raise self._backwards(row, previous_ns)
                previous_ns = row.time_ns
                first_ns = previous_ns if first_ns is None else first_ns
                yield row._replace(time_ns=row.time_ns - first_ns) if first_ns else row
        except MalformedLineError as error:
            raise WorkloadError(f"{self.path}, {error}.") from None
        except OSError as error:
            raise WorkloadError(f"{self.path} cannot be read: {error.strerror}.") from None

    def _backwards(self, row: TraceRow, previous_ns: int) -> WorkloadError:
        early_s = (previous_ns - row.time_ns) / NS_PER_S
        return WorkloadError(
            f"{self.path}, line {row.line}: its timestamp is {early_s:.9g} s before that of the "
            "request above it; sort the file by its timestamps."
        )

    def _choose_format(self, setting: str, name: str) -> TraceFormat:
        if name not in names():
            fix = "auto recognises it by the first line"
            raise refusal(setting, name, f"one of {', '.join(names())}", fix)
        return by_name(name) if name != "auto" else self._recognise(setting)

    def _recognise(self, setting: str) -> TraceFormat:
        line = first_line(self.path)
        found = recognise(line)
        if found is None:
            known = "; ".join(f"{each.name}: {each.expects}" for each in FORMATS)
            raise WorkloadError(
                f"{self.path}: the format is not known from its first line {line[:60]!r} "
                f"({known}); convert the file, or name its format with {setting}."
            )
        return found


def find_trace(setting: str, path: str | None) -> Path:
    """The file that `path` names: as given or, if relative, in the folder that FRAGBENCH_TRACES
    names. Raises WorkloadError that says where it looked."""
    fix = f"give a file, as in {setting}=azure_llm_2023_conv.csv"
    given = Path(text(setting, path, "the path of a trace", fix)).expanduser()
    folder = os.environ.get(TRACES_VARIABLE)
    candidates = [given.absolute()]
    if folder and not given.is_absolute():
        candidates.append(Path(folder).absolute() / given)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    looked = " and ".join(str(candidate) for candidate in candidates)
    hint = "" if folder else f", or set {TRACES_VARIABLE} to the folder that holds your traces"
    raise WorkloadError(
        f"{setting} is {path!r}; no such file: looked at {looked}; correct the path{hint}."
    )


def numbered_lines(path: Path) -> Iterator[Line]:
    """Numbered lines without their ends (LF, CRLF or CR), blank ones left out."""
    with path.open(encoding="utf-8-sig", errors="backslashreplace") as file:
        for number, line in enumerate(file, 1):
            if stripped := line.strip():
                yield number, stripped


def first_line(path: Path) -> str:
    """The first line that is not blank, from the file's first MiB; an empty file is an error."""
    try:
        with path.open(encoding="utf-8-sig", errors="backslashreplace") as file:
            start = file.read(_FIRST_LINE_CHARACTERS).strip()
    except OSError as error:
        raise WorkloadError(f"{path} cannot be read: {error.strerror}.") from None
    if not start:
        raise WorkloadError(f"{path}: the file is empty; give a trace that has requests.")
    return start.split("\n", 1)[0].rstrip()
