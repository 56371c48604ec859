"""`fragbench replay SNAPSHOT`: what a recorded program would have needed under other settings."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from bench.device.launcher import Job, Launcher
from bench.device.virtual import allocator_environment, gpu_environment
from bench.errors import SettingError
from bench.exercise.wording import counted
from bench.experiment import compose_cells, make_console
from bench.metrics.records import write_json
from bench.paper.jobs import run_all
from bench.report.drawing import png, style
from bench.report.palette import LIGHT
from bench.snapshots.memory_map import MemoryMap, draw_memory_maps
from bench.snapshots.notes import notes
from bench.snapshots.outcome import GIB, Likeness, Outcome, likeness
from bench.snapshots.settings import Settings, read_settings
from bench.snapshots.stored import Replayed, load, load_replay
from bench.snapshots.table import terminal_table
from bench.snapshots.verdict import verdict

NAME = "replay"
READ, REPLAY = "bench.snapshots.reading:read", "bench.snapshots.replay_job:replay"
FILES = ("memory_maps.png", "replay.json")
NAME_CHARACTERS = 34

USAGE = """\
usage: fragbench replay SNAPSHOT [key=value ...]

A memory snapshot that torch.cuda.memory._dump_snapshot wrote on any GPU, replayed: the same
allocations and frees through PyTorch's own allocator on a virtual GPU, under each of several
settings. Writes memory_maps.png and replay.json to out=DIR, else to a dated folder.

  gpu=a100_80gb        the card, of conf/gpu/; the snapshot does not say which it was
  memory=24            its memory in GiB, instead of the card's own
  alloc_conf=...       what PYTORCH_ALLOC_CONF would hold, such as expandable_segments:True. Give it
                       several times to compare; the default, without any, is always there
  device_index=0       which of the snapshot's GPUs
  memory_fraction=0.9  what the program gives to torch.cuda.set_per_process_memory_fraction

  fragbench replay snapshot.pickle gpu=h100_80gb
  fragbench replay snapshot.pickle memory=24 alloc_conf=max_split_size_mb:64 \\
      alloc_conf=expandable_segments:True,roundup_power2_divisions:4

Before the program is to be looked at, switch recording on; at the end, dump:
  torch.cuda.memory._record_memory_history(max_entries=1_000_000)
  torch.cuda.memory._dump_snapshot("snapshot.pickle")"""


class _Replays(NamedTuple):
    """What is known of the snapshot, and each replay with what its allocator did."""

    recorded: dict[str, Any]
    outcomes: list[Outcome]
    likenesses: list[Likeness | None]
    maps: list[MemoryMap]


def main(argv: list[str]) -> int:
    """`fragbench replay`: 0. Raises SettingError."""
    if any(argument in ("-h", "--help") for argument in argv):
        print(USAGE)
        return 0
    settings = read_settings(argv)
    command = ["fragbench", NAME, *argv]
    _, folder = compose_cells([f"out={settings.out}"] if settings.out else [], command)
    console = make_console()
    with tempfile.TemporaryDirectory(prefix="fragbench-replay-") as scratch:
        found = _replay(settings, Path(scratch), console)
    folder.mkdir(parents=True, exist_ok=True)
    confs = [each.alloc_conf for each in found.outcomes]
    said = list(notes(settings, found.recorded, confs, found.likenesses))
    helped = verdict(found.outcomes, _base(found))
    console.print(terminal_table(found.outcomes, _title(settings, found.recorded)))
    _write(found, folder, _labels(settings, command) | {"notes": said, "verdict": helped})
    for line in (*said, *(f"Wrote {folder / file}" for file in FILES), helped):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 0


def _replay(settings: Settings, scratch: Path, console: Console) -> _Replays:
    history = scratch / "history.npz"
    recorded = _read(settings, history)
    confs = settings.to_replay(recorded["alloc_conf"])
    files = {conf: scratch / f"replay-{place}.npz" for place, conf in enumerate(confs)}
    card = gpu_environment(settings.gpu)
    jobs = {
        conf: Job(
            REPLAY,
            {
                "history": str(history),
                "out": str(file),
                "exactly": conf == (recorded["alloc_conf"] or ""),
                "memory_fraction": settings.memory_fraction,
            },
            card | allocator_environment(conf),
        )
        for conf, file in files.items()
    }
    modules = ("torch", "bench.snapshots.replay_job")
    try:
        results: Mapping[str, Any] = run_all(jobs, "virtual", modules, None, console)
    except SettingError as error:
        raise _named(error, settings, recorded["alloc_conf"]) from error
    replayed = {conf: load_replay(file) for conf, file in files.items()}
    outcomes = [Outcome(conf, **results[conf]) for conf in confs]
    return _Replays(
        recorded, outcomes, *_compared(history, recorded["alloc_conf"], replayed, outcomes)
    )


def _named(error: SettingError, settings: Settings, recorded: str | None) -> SettingError:
    """The error, of settings that nobody gave with what to do about them."""
    if settings.alloc_confs is not None or not recorded or f"={recorded} " not in str(error):
        return error
    return SettingError(
        f"{error} The snapshot was recorded under it: leave it out by naming "
        "what to replay, as in alloc_conf=default alloc_conf=expandable_segments:True."
    )


def _read(settings: Settings, out: Path) -> dict[str, Any]:
    """Reads the snapshot in a process of its own, which it may kill."""
    payload = {
        "path": str(settings.snapshot),
        "device_index": settings.device_index,
        "out": str(out),
    }
    with Launcher("cpu", modules=("bench.snapshots.reading",)) as launcher:
        finished = launcher.run(Job(READ, payload))
    if finished.status == "ok":
        return dict(finished.result)
    if finished.status == "user_error":
        raise SettingError(str(finished.cause))
    raise SettingError(
        f"{settings.snapshot} is no memory snapshot: reading it ended with "
        f"{finished.signal or finished.error_type or finished.cause}, beyond the memory or time "
        "that a snapshot of its size takes."
    )


def _compared(
    path: Path, recorded: str | None, replayed: Mapping[str, Replayed], outcomes: Sequence[Outcome]
) -> tuple[list[Likeness | None], list[MemoryMap]]:
    """Replays under the recorded settings beside what was recorded; and all maps. The recorded one
    is left out where a replay came to the same."""
    history, steps = load(path)
    likenesses = [
        likeness(history, steps, each.figures.reserved) if conf == recorded else None
        for conf, each in replayed.items()
    ]
    same = any(each and not each.differing for each in likenesses)
    maps = [] if same else [MemoryMap("as recorded", history, steps.step_of_row.astype(float))]
    for outcome, each in zip(outcomes, replayed.values(), strict=True):
        as_recorded = same and outcome.alloc_conf == recorded
        maps.append(MemoryMap(_caption(outcome, as_recorded), each.history, each.times))
    return likenesses, maps


def _caption(outcome: Outcome, as_recorded: bool) -> str:
    """What fits above a map."""
    name = outcome.name
    if len(name) > NAME_CHARACTERS:
        name = f"{name[: NAME_CHARACTERS - 3]}..."
    ooms = f", {counted(outcome.failures, 'OOM')}" if outcome.failures else ""
    recorded = " (as recorded)" if as_recorded else ""
    return f"{name}{recorded}: {outcome.peak_reserved_bytes / GIB:,.2f} GiB{ooms}"


def _base(found: _Replays) -> Outcome:
    """What others are compared with: the recorded settings, else PyTorch's default."""
    recorded = found.recorded["alloc_conf"]
    return next((each for each in found.outcomes if each.alloc_conf == recorded), found.outcomes[0])


def _title(settings: Settings, recorded: Mapping[str, Any]) -> str:
    gpu = settings.gpu
    return (
        f"{settings.snapshot.name}: {recorded['steps']:,} steps on a virtual {gpu.name} with "
        f"{gpu.usable_bytes / GIB:,.2f} GiB"
    )


def _labels(settings: Settings, command: Sequence[str]) -> dict[str, Any]:
    return {
        "snapshot": str(settings.snapshot),
        "command": list(command),
        "device": "virtual",
        "gpu": settings.gpu.name,
        "usable_bytes": settings.gpu.usable_bytes,
        "memory_fraction": settings.memory_fraction,
    }


def _write(found: _Replays, folder: Path, labels: dict[str, Any]) -> None:
    replays = [
        asdict(each) | {"as_recorded": alike and asdict(alike)}
        for each, alike in zip(found.outcomes, found.likenesses, strict=True)
    ]
    with style(LIGHT):
        picture = png(draw_memory_maps(found.maps, xlabel="allocations and frees"))
    (folder / FILES[0]).write_bytes(picture)
    write_json(folder / FILES[1], labels | {"recorded": found.recorded, "replays": replays})
