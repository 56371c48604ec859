"""`fragbench load url=...`: a workload's traffic against a server that is already running."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from collections.abc import Iterator
from importlib.metadata import version
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.status import Status

from bench.config import Config, from_container
from bench.errors import SettingError
from bench.experiment import CONF_FOLDER, PLAIN_WIDTH, compose_cells
from bench.load.models import Served, served_model
from bench.load.payload import STOPPED, Payload
from bench.load.processes import send_for_master, send_traffic
from bench.load.settings import LoadSettings
from bench.load.summary import figures, last_attempts, read_attempts, warnings, write_requests
from bench.load.table import print_figures
from bench.metrics.records import write_json
from bench.packaged import option_names
from bench.plugins import make
from workloads.base import Request, Workload, WorkloadError

FAILED, INTERRUPTED = 1, 130
NAME = "load"
API_KEY = "FRAGBENCH_API_KEY"
MOST_COUNTED = 200_000
SECRET = "api_key"

USAGE = """\
usage: fragbench load url=http://HOST:PORT [key=value ...]

The traffic of a workload, by Locust, against a running server that speaks OpenAI's protocol (vLLM,
SGLang, TGI, llama.cpp, `fragbench serve`). Writes client/ (a row an attempt), requests/, scraped/
(the server's own gauges) and summary.json to out=DIR, else to a dated folder under results/.

Examples
  fragbench load url=http://127.0.0.1:8000 workload=chat workload.rate_rps=2
  fragbench load url=http://127.0.0.1:8000 model=my-model vocab_size=32000 workload=sharegpt
  fragbench load url=http://127.0.0.1:8000 workload=mixed users=64 stop_after_s=60 processes=2
  fragbench load url=http://127.0.0.1:8080 prompt_as=text endpoint=chat ignore_eos=false
  fragbench load url=http://10.0.0.1:8000 bind_host=0.0.0.0 master_port=5557 expect_workers=4
  fragbench load master_host=10.0.0.2 master_port=5557 processes=2   (on another machine)

Settings of this command: key=value or load.key=value
{settings}

workload=, seed=, stop_after_s=, out= and the rest: as `fragbench run --help` says. model= is an
option of conf/model/, whose vocabulary prompts are made of, or else what the server calls its own.
api_key can be in the environment, as {api_key}."""


def main(argv: list[str]) -> int:
    """`fragbench load`: 0 if requests completed, 1 if none did or the run was cut short, 130 if by
    the user. Raises SettingError."""
    if any(argument in ("-h", "--help") for argument in argv):
        print(_help())
        return 0
    config, container, folder = _composed(argv)
    if config.load.master_host is not None:
        return send_for_master(_payload(config, container, config.load, None))
    load = reach(config.load)
    try:
        workload: Workload = make(container["workload"], "workload")
        expected = count_requests(workload, config)
    except WorkloadError as error:
        raise SettingError(str(error)) from error
    folder.mkdir(parents=True, exist_ok=True)
    _write_setting_files(folder, container, argv)
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    started_s = time.monotonic()
    payload = _payload(config, container, load, expected)
    facts = _send(payload, folder, console)
    summary = _labels(container, load, workload.name) | facts | _figures(folder, load, facts)
    summary["wall_s"] = time.monotonic() - started_s
    write_json(folder / "summary.json", summary)
    print_figures(summary, folder, console)
    if summary["cause"] == STOPPED:
        return INTERRUPTED
    completed = summary["requests"]["completed"]
    return 0 if summary["status"] == "completed" and completed else FAILED


def _composed(argv: list[str]) -> tuple[Config, dict[str, Any], Path]:
    arguments = [_in_full(argument) for argument in argv]
    # No device is looked for: the server has it.
    cells, folder = compose_cells([*arguments, "++device=cpu"], ["fragbench", NAME, *argv])
    if len(cells) != 1:
        raise SettingError(f"`fragbench {NAME}` sends one workload: give one value of each key.")
    return from_container(cells[0].config), cells[0].config, folder


def _in_full(argument: str) -> str:
    """url=... as load.url=...; model=NAME too, unless it names an option of conf/model/."""
    key, equals, value = argument.partition("=")
    own = {field.name for field in dataclasses.fields(LoadSettings)}
    ours = key.partition(".")[0] in own and equals
    is_shape = key == "model" and value in option_names("model")
    return f"load.{argument}" if ours and not is_shape else argument


def reach(load: LoadSettings) -> LoadSettings:
    """The settings with what the server at `load.url` said of itself: its model, and whether it
    may be told lengths. Raises SettingError."""
    if load.url is None:
        raise SettingError(f"`fragbench {NAME}` needs a server: give url=http://HOST:PORT.")
    key = load.api_key or os.environ.get(API_KEY)
    served: Served = served_model(load.url, key, load.model)
    tell = served.by_fragbench if load.tell_lengths is None else load.tell_lengths
    return dataclasses.replace(load, model=served.name, api_key=key, tell_lengths=tell)


def _payload(
    config: Config, container: dict[str, Any], load: LoadSettings, expected: int | None
) -> Payload:
    return Payload(
        load=load,
        workload=container["workload"],
        seed=config.seed,
        stop_after_s=config.stop_after_s,
        vocab_size=config.model.vocab_size,
        workers=load.expect_workers or load.processes,
        expected=expected,
    )


def count_requests(workload: Workload, config: Config) -> int | None:
    """Requests that will be sent, later turns included; None if the run may end before.

    Raises WorkloadError for a workload without requests, and for beams, which no server of this
    protocol keeps.
    """
    end_s = float("inf") if config.stop_after_s is None else config.stop_after_s
    first_turns = workload.requests(config.seed)
    if config.load.users is None:
        first_turns = takewhile(lambda request: request.scheduled_s < end_s, first_turns)
    count = 0
    for request in islice(_turns(first_turns), MOST_COUNTED):
        if request.survivors is not None:
            raise WorkloadError(
                f"workload={workload.name} asks for beams, which cannot be asked for over HTTP: "
                "choose workload=parallel_sampling."
            )
        count += 1
    if not count:
        raise WorkloadError(f"workload={workload.name} has no requests: widen its limits.")
    return count if config.stop_after_s is None and count < MOST_COUNTED else None


def _turns(first_turns: Iterator[Request]) -> Iterator[Request]:
    for first in first_turns:
        turn: Request | None = first
        while turn is not None:
            yield turn
            turn = turn.next_turn


def _send(payload: Payload, folder: Path, console: Console) -> dict[str, Any]:
    if payload.load.web_ui:
        address = f"http://{payload.load.bind_host}:{payload.load.web_port}"
        console.print(f"Locust's page: {address}", highlight=False)
    if payload.workers > payload.load.processes:
        console.print(f"waiting for {payload.workers} workers", highlight=False)
    with console.status("starting Locust") as status:
        return send_traffic(payload, folder, lambda progress: _show(status, progress))


def _show(status: Status, progress: dict[str, Any]) -> None:
    ended = ", ".join(f"{count:,} {name}" for name, count in progress["ended"].items())
    of = f" of {progress['expected']:,}" if progress["expected"] else ""
    status.update(f"{max(progress['at_s'], 0):.0f} s: {ended or 'none ended'}{of}")


def _figures(folder: Path, load: LoadSettings, facts: dict[str, Any]) -> dict[str, Any]:
    attempts = read_attempts(folder)
    write_requests(folder, last_attempts(attempts))
    found = figures(attempts, load.warm_up_s, load.cool_down_s)
    return found | {"warnings": warnings(found, facts)}


def _labels(container: dict[str, Any], load: LoadSettings, workload: str) -> dict[str, Any]:
    path = container["workload"].get("path")
    return {
        "name": container["name"],
        "url": load.url,
        "device": "server",
        "time": "measured",
        "backend": "server",
        "workload": Path(path).stem if path else workload,
        "model": load.model,
        "seed": container["seed"],
        "loop": "open" if load.users is None else "closed",
    }


def _write_setting_files(folder: Path, container: dict[str, Any], argv: list[str]) -> None:
    """config.yaml and environment.json, without the key."""
    section = container["load"]
    kept = container | {"load": section | {SECRET: None}}
    text = yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    command = [arg if f"{SECRET}=" not in arg else f"{SECRET}=..." for arg in argv]
    packages = ("fragbench", "locust", "gevent", "geventhttpclient", "numpy", "pyarrow")
    content = {
        "command": ["fragbench", NAME, *command],
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    write_json(folder / "environment.json", content)


def _help() -> str:
    path = CONF_FOLDER / "load" / "default.yaml"
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    settings = "\n".join(f"  {line.replace(': ', '=', 1)}" for line in lines)
    return USAGE.format(settings=settings, api_key=API_KEY)
