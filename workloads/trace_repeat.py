"""A trace that begins anew when it ends, as the same lengths at the same gaps of other requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from workloads.base import Source
from workloads.formats.base import TraceRow


def repeated(rows: Callable[[], Iterator[TraceRow]], length_ns: int) -> Iterator[TraceRow]:
    """The rows, again and again, each time `length_ns` later.

    Ids of requests and of shared texts go on after the largest ones of the first time: nothing is
    shared between one time and another. There must be rows.
    """
    most_request = most_shared = 0
    for number, row in enumerate(rows()):
        own = [number if row.request_id is None else row.request_id]
        requests = [part.id for part in row.prefix if part.source is not Source.SHARED]
        shared = [part.id for part in row.prefix if part.source is Source.SHARED]
        most_request = max(most_request, *own, *requests)
        most_shared = max([most_shared, *shared])
        yield row
    for time in count(1):
        for row in rows():
            yield _moved(row, time * length_ns, time * (most_request + 1), time * (most_shared + 1))


def _moved(row: TraceRow, by_ns: int, requests: int, shared: int) -> TraceRow:
    prefix = tuple(
        part._replace(id=part.id + (shared if part.source is Source.SHARED else requests))
        for part in row.prefix
    )
    request_id = None if row.request_id is None else row.request_id + requests
    return row._replace(time_ns=row.time_ns + by_ns, prefix=prefix, request_id=request_id)
