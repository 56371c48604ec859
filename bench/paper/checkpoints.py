"""The five-point debugging pass: where is memory at five points of a server's life? No figure of
the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure as Drawing

from bench.paper.checkpoints_drawing import draw
from bench.paper.figure import Row
from bench.paper.jobs import run_points
from bench.paper.task import Point, Task

JOB = "bench.paper.checkpoints_job:measure"
GIB, MIB = 1 << 30, 1 << 20
MIX_REQUESTS, CROWD_REQUESTS = 300, 300
QUICK_SHARE = 5
TRAFFIC = ("model=llama3_8b", "gpu=a100_40gb", "workload=mixed", "workload.rate_rps=1.5",
           "workload.duration_s=null", "workload.num_requests=10000", "utilization=0.92",
           "sample_interval_s=1")  # fmt: skip
GROW = ("backend.reserve=grow", "backend.layout=sequence")
SYSTEMS = {
    "contiguous, growing": ("backend=contiguous", *GROW),
    "the same, expandable segments": ("backend=contiguous_expandable", *GROW),
    "paged, prompts whole": ("backend=paged", "engine.prefill=whole"),
}
POINTS = {
    "init": "1 after model init",
    "two": "2 with a short and a long request",
    "ended": "3 after requests end",
    "mix": "4 after a varied mix",
    "failing": "5 at the failing operation, or where least was free",
}
QUANTITIES = {
    "requested": "requested", "allocated": "allocated", "reserved": "reserved",
    "largest_free": "largest free",
}  # fmt: skip


class Checkpoints:
    """Requested, allocated, reserved and the largest free block at five points."""

    name = "checkpoints"
    title = "memory at five points of a server's life, the failing operation the last"
    files = None

    def rows(self, task: Task) -> list[Row]:
        shorter = QUICK_SHARE if task.quick else 1
        also = {
            "mix_requests": MIX_REQUESTS // shorter,
            "crowd_requests": CROWD_REQUESTS // shorter,
        }
        points = [(Point(_name(label), (*TRAFFIC, *own)), also) for label, own in SYSTEMS.items()]
        found = run_points(JOB, points, task)
        return [row for label in SYSTEMS for row in _rows(label, found[_name(label)])]

    def draw(self, rows: Sequence[Row]) -> Drawing:
        return draw(rows, list(POINTS.values()), list(QUANTITIES.values()))


def _name(label: str) -> str:
    return label.replace(",", "").replace(" ", "_")


def _rows(label: str, found: Mapping[str, Any]) -> list[Row]:
    rows = []
    for place, (key, said) in enumerate(POINTS.items(), 1):
        state, note = found["points"].get(key), ""
        if key == "failing":
            state, note = _at_the_end(found)
        rows += [
            Row(
                panel=label, system=said, quantity=shown, unit="GiB", x=float(place),
                x_is="checkpoint", ours=None if state is None else state[quantity] / GIB,
                note="; ".join(filter(None, ("virtual GPU", note))),
            )
            for quantity, shown in QUANTITIES.items()
        ]  # fmt: skip
    return rows


def _at_the_end(found: Mapping[str, Any]) -> tuple[Mapping[str, int] | None, str]:
    """The state in the operation that failed; where none did, that in which least was free."""
    wanted = found["wanted_bytes"]
    if wanted is None:
        return found["fullest"], "nothing was refused: the step with least free memory"
    return found["points"]["failing"], f"{wanted / MIB:,.0f} MiB were refused"
