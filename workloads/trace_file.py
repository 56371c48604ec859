"""A recorded trace on disk: found, recognised, checked once, then read as often as needed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from workloads.arrivals.base import NS_PER_S
from workloads.base import WorkloadError
from workloads.formats.base import MalformedLineError, Tally, TraceRow
from workloads.formats.choices import tally, why_none
from workloads.formats.opening import compression, reading
from workloads.formats.registry import choose
from workloads.settings import (
    MAX_DURATION_S,
    optional_duration_s,
    optional_requests,
    refusal,
    text,
)

TRACES_VARIABLE = "FRAGBENCH_TRACES"
_LONGEST_NS = int(MAX_DURATION_S) * NS_PER_S


_PACKED = (".gz", ".zst", ".zstd")


def trace_name(path: str | Path) -> str:
    """What a trace is called: its file's name without its ending, and that of its packing."""
    file = Path(path)
    file = file.with_suffix("") if file.suffix in _PACKED else file
    return file.stem


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """What one reading of the whole selection found. `span_ns` is from first to last arrival.

    `rows` were looked at: the requests, and those left out, which are `skipped` (they could not be
    read; `first_skipped` says why the first one), `silent` conversations and, unless they were
    kept, `failed` requests.
    """

    requests: int
    span_ns: int
    rows: int
    skipped: int
    first_skipped: str | None
    failed: int
    silent: int
    shares_prefixes: bool


class TraceFile:
    """The part of a trace that a run uses: at most `limit` requests of the first `duration_s`.

    Making one reads that part once, keeping one row at a time: what cannot be read is a
    WorkloadError before anything has run. Blank lines are skipped; the last line counts whether or
    not it ends. `owner` is where the settings are, for messages; `on_bad_row`, `failed_requests`
    and `output_tokens` are as workloads/formats/choices.py says.
    """

    def __init__(
        self,
        path: str | None,
        format: str,  # noqa: A002 (the setting's name)
        *,
        limit: int | None = None,
        duration_s: float | None = None,
        on_bad_row: str = "fail",
        failed_requests: str = "drop",
        output_tokens: int | None = None,
        owner: str = "workload",
    ) -> None:
        self._limit = optional_requests(f"{owner}.limit", limit)
        self._duration_s = optional_duration_s(f"{owner}.duration_s", duration_s)
        self._choices = tally(owner, on_bad_row, failed_requests, output_tokens)
        self.path = find_trace(f"{owner}.path", path, folders=True)
        with reading(self.path):
            self._format = choose(f"{owner}.format", format, self.path)
        if duration_s is not None and not self.has_times:
            allowed = f"null for a {self._format.name} file, which has no times"
            raise refusal(f"{owner}.duration_s", duration_s, allowed, f"set {owner}.limit")
        self.summary = self._read_once()

    @property
    def has_times(self) -> bool:
        """Whether the format has times of arrival; without, all rows are at 0."""
        return self._format.time is not None

    @property
    def format_name(self) -> str:
        """The format that was recognised, or named."""
        return self._format.name

    @property
    def rate_rps(self) -> float | None:
        """(requests - 1) / span: None for a single request, or for all of them at one moment."""
        span_ns = self.summary.span_ns
        return (self.summary.requests - 1) * NS_PER_S / span_ns if span_ns else None

    def facts(self) -> dict[str, Any]:
        """What was read, for previews and summaries."""
        summary = self.summary
        return {
            "file": self.path.name,
            "format": self._format.name,
            "compression": None if self.path.is_dir() else compression(self.path),
            "rows": summary.rows,
            "requests": summary.requests,
            "skipped_rows": summary.skipped,
            "first_skipped_row": summary.first_skipped,
            "failed_requests": summary.failed,
            "failed_requests_are": "kept" if self._choices.keep_failed else "dropped",
            "silent_conversations": summary.silent,
            "tokens": "estimated" if self._format.estimates_tokens else "recorded",
            "shares_prefixes": summary.shares_prefixes,
            "span_s": summary.span_ns / NS_PER_S if self.has_times else None,
            "rate_rps": self.rate_rps,
        }

    def rows(self) -> Iterator[TraceRow]:
        """The selected rows in order, `time_ns` counted from the first one's arrival."""
        first_ns: int | None = None
        for row in self._selected(replace(self._choices)):
            first_ns = row.time_ns if first_ns is None else first_ns
            yield TraceRow(row[0], row.time_ns - first_ns, *row[2:]) if first_ns else row

    def _read_once(self) -> TraceSummary:
        met = replace(self._choices)
        requests, shares, first, row = 0, False, None, None
        for row in self._selected(met):
            first = first or row
            requests += 1
            shares = shares or bool(row.prefix)
        if first is None or row is None:
            raise WorkloadError(f"{self.path}: the trace has no requests; {why_none(met)}.")
        return TraceSummary(
            requests=requests,
            span_ns=row.time_ns - first.time_ns,
            rows=met.rows,
            skipped=met.skipped,
            first_skipped=met.first_skipped,
            failed=met.failed,
            silent=met.silent,
            shares_prefixes=shares,
        )

    def _selected(self, met: Tally) -> Iterator[TraceRow]:
        return islice(self._in_order(met), self._limit)

    def _in_order(self, met: Tally) -> Iterator[TraceRow]:
        """Rows of the duration; one that is before the row above it, or far too late, is bad."""
        wanted_ns = math.inf if self._duration_s is None else self._duration_s * NS_PER_S
        first_ns = previous_ns = None
        with reading(self.path):
            for row in self._format.rows(self.path, met):
                time_ns = row.time_ns
                if first_ns is None or previous_ns is None:
                    first_ns = previous_ns = time_ns
                if not previous_ns <= time_ns <= first_ns + _LONGEST_NS:
                    met.bad(_MisplacedLineError(row, self._format.time, first_ns, previous_ns))
                    continue
                if time_ns - first_ns >= wanted_ns:
                    met.rows -= 1  # it is none of the part chosen
                    return
                previous_ns = time_ns
                yield row


def find_trace(setting: str, path: str | None, *, folders: bool = False) -> Path:
    """The file that `path` names, or a folder where `folders` are fine: as given or, if relative,
    in the folder that FRAGBENCH_TRACES names. Raises WorkloadError that says where it looked."""
    fix = f"give a file, as in {setting}=azure_llm_2023_conv.csv"
    given = Path(text(setting, path, "the path of a trace", fix)).expanduser()
    folder = os.environ.get(TRACES_VARIABLE)
    candidates = [given.absolute()]
    if folder and not given.is_absolute():
        candidates.append(Path(folder).absolute() / given)
    for candidate in candidates:
        if candidate.is_file() or (folders and candidate.is_dir()):
            return candidate
    looked = " and ".join(str(candidate) for candidate in candidates)
    hint = "" if folder else f", or set {TRACES_VARIABLE} to the folder that holds your traces"
    raise WorkloadError(
        f"{setting} is {path!r}; no such file: looked at {looked}; correct the path{hint}."
    )


class _MisplacedLineError(MalformedLineError):
    """A row that is well written, but not where its time belongs."""

    def __init__(self, row: TraceRow, column: str | None, first_ns: int, previous_ns: int) -> None:
        early_s = (previous_ns - row.time_ns) / NS_PER_S
        problem = f"{early_s:.9g} s before that of the request above it; sort the file by its times"
        if early_s < 0:
            after_s = (row.time_ns - first_ns) / NS_PER_S
            most = f"{MAX_DURATION_S:g} s at most; correct or remove the line"
            problem = f"{after_s:.9g} s after that of the first request, {most}"
        ValueError.__init__(self, f"line {row.line}, column {column}: its time is {problem}")
