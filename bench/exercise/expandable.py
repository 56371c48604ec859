"""Exercise b: the same fragments under expandable segments, and what an allocation costs each
way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from bench.costs import CostConstants
from bench.exercise.allocator_jobs import Setup, compose, run_jobs
from bench.exercise.base import Number, Outcome, Own
from bench.exercise.expandable_drawing import MapOf, draw
from bench.exercise.fragment import JOB, stripped, table
from bench.exercise.fragment_finding import outcome
from bench.exercise.fragment_layouts import MIB, SIZES, layouts, payload
from bench.exercise.wording import amount, counted, digits, listed
from bench.paper.task import Task

COST_JOB = "bench.exercise.fragment_job:measure_costs"
EXPANDABLE = "expandable_segments:True"
DEFAULT = "default"
COST_SIZES = tuple(size * MIB for size in (2, 20, 64, 256, 1024))
WAYS = ("new", "cached")


class Expandable:
    """Exercise a with and without `alloc_conf`, and the costs."""

    name = "b"
    title = "the same with expandable segments, and the cost of an allocation each way"
    own = SIZES | {"repeats": Number(25, 3, 10_000, "times", "an allocation of each size is timed")}
    takes = ("gpu", "device", "alloc_conf", "jobs", "costs")
    varied = ()

    def run(self, task: Task, own: Own) -> Outcome:
        setup = compose(task, self.name)
        confs = {DEFAULT: "", "with": setup.alloc_conf or EXPANDABLE}
        cases = {
            (way, case.key): (conf, payload(case, own))
            for way, conf in confs.items()
            for case in layouts(own)
        }
        results = run_jobs(task, setup, JOB, cases)
        fragments = {
            way: {case.key: results[way, case.key] for case in layouts(own)} for way in confs
        }
        asked = {"sizes_bytes": COST_SIZES, "repeats": int(own["repeats"])}
        timed = {way: (conf, asked) for way, conf in confs.items()}
        measured = run_jobs(task, setup, COST_JOB, timed, at_once=1)  # as time is measured
        costs = {way: [_modelled(each, setup) for each in rows] for way, rows in measured.items()}
        return _outcome(setup, confs["with"], own, fragments, costs)


def _modelled(cost: dict[str, Any], setup: Setup) -> dict[str, Any]:
    """With the modelled seconds of the driver's calls; None on a card, whose allocator does not
    count them by kind."""
    return cost | {
        way: cost[way] | {"modelled_driver_s": _driver_s(cost[way], setup)} for way in WAYS
    }


def _driver_s(cost: Mapping[str, Any], setup: Setup) -> float | None:
    if setup.device != "virtual":
        return None
    return driver_s(setup.config.costs, cost["driver_calls"])


def driver_s(constants: CostConstants, calls: Mapping[str, int]) -> float:
    """Modelled seconds of driver calls."""
    seconds = constants.driver_call_s()
    return sum(seconds[kind] * count for kind, count in calls.items())


def _outcome(
    setup: Setup, conf: str, own: Own, fragments: dict[str, Any], costs: dict[str, Any]
) -> Outcome:
    return Outcome(
        (_said_outcomes(fragments, own, conf), _said_costs(costs, setup, int(own["large_mib"]))),
        {
            "device": setup.device,
            "alloc_conf": conf,
            "layouts": {way: stripped(results) for way, results in fragments.items()},
            "costs": costs,
            "costs_note": _note(setup),
        },
        lambda: draw(_maps(fragments["with"], own), costs, conf),
        (table(fragments["with"], layouts(own)), _cost_table(costs, conf)),
    )


def _note(setup: Setup) -> str:
    if setup.device == "virtual":
        return "driver time is modelled from its calls; host time is measured, without a driver"
    return "host time is measured, with the driver's"


def _maps(results: Mapping[str, Any], own: Own) -> list[MapOf]:
    wanted = amount(own["request_mib"] * MIB)
    return [
        MapOf(f"{case.title}:\n{wanted} {outcome(results[case.key])}", results[case.key]["shown"])
        for case in layouts(own)
    ]


def _said_outcomes(fragments: Mapping[str, Any], own: Own, conf: str) -> str:
    """Where the setting changed what became of the request, and where it did not."""
    changed, same = [], []
    for case in layouts(own):
        default, now = (fragments[way][case.key] for way in (DEFAULT, "with"))
        back = amount(now["before"]["releasable_bytes"])
        gap = amount(now["before"]["reserved_bytes"] - now["before"]["allocated_bytes"])
        said = f"{{}} where {case.where} ({back} of {gap} kept could go back)"
        if (default["refusal"] is None) == (now["refusal"] is None):
            same.append(said.format(_short(now)))
        else:
            changed.append(said.format(f"{_short(now)} instead of {_short(default)}"))
    parts = [
        *([f"was {listed(changed)}"] if changed else []),
        *([f"was, as by default, {listed(same)}"] if same else []),
    ]
    wanted = amount(own["request_mib"] * MIB)
    return f"With {conf} the request for {wanted} {listed(parts)}."


def _short(result: Mapping[str, Any]) -> str:
    return "served" if result["refusal"] is None else "refused"


def _said_costs(costs: Mapping[str, Any], setup: Setup, large_mib: int) -> str:
    """Of the size nearest to the tensors'."""
    size = min(COST_SIZES, key=lambda nbytes: abs(nbytes - large_mib * MIB))
    place = COST_SIZES.index(size)
    new, new_default = (costs[way][place]["new"] for way in ("with", DEFAULT))
    cached, cached_default = (costs[way][place]["cached"] for way in ("with", DEFAULT))
    return (
        f"A new allocation of {amount(size)} took {_said_driver(new)} instead of "
        f"{_said_driver(new_default)}, and {_host_us(new)} us of the host instead of "
        f"{_host_us(new_default)}; one that found cached memory took {_said_driver(cached)} and "
        f"{_host_us(cached)} us instead of {_host_us(cached_default)} ({_note(setup)})."
    )


def _said_driver(cost: Mapping[str, Any]) -> str:
    said = counted(sum(cost["driver_calls"].values()), "driver call")
    modelled_s = cost["modelled_driver_s"]
    return f"{said} of {digits(modelled_s * 1e6)} us in all" if modelled_s else said


def _host_us(cost: Mapping[str, Any]) -> str:
    return digits(cost["host_s"] * 1e6)


def _cost_table(costs: Mapping[str, Any], conf: str) -> Table:
    shown = Table(title="an allocation", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("size", "memory", "settings"):
        shown.add_column(heading)
    for heading in ("driver calls", "driver us, modelled", "host us, measured"):
        shown.add_column(heading, justify="right")
    for place, size in enumerate(COST_SIZES):
        for way in WAYS:
            for name, said in ((DEFAULT, DEFAULT), ("with", conf)):
                cost = costs[name][place][way]
                modelled = cost["modelled_driver_s"]
                shown.add_row(
                    amount(size), way, said, f"{sum(cost['driver_calls'].values()):,}",
                    "-" if modelled is None else digits(modelled * 1e6),
                    digits(cost["host_s"] * 1e6),
                )  # fmt: skip
    return shown
