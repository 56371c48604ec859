"""`fragbench load url=...`: a workload's traffic against a server that is already running."""

from __future__ import annotations

import dataclasses
import os
import platform
import time
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.status import Status

from bench.config import Config, from_container
from bench.errors import SettingError
from bench.experiment import CONF_FOLDER, NO_ENGINE, compose_cells, make_console
from bench.load.models import Served, served_model
from bench.load.payload import STOPPED, Payload
from bench.load.ports import check_ports
from bench.load.processes import send_for_master, send_traffic
from bench.load.settings import LoadSettings
from bench.load.summary import (
    figures,
    last_attempts,
    outcome,
    read_attempts,
    warnings,
    write_client_gaps,
    write_requests,
)
from bench.load.table import print_figures
from bench.metrics.records import write_json
from bench.packaged import option_names
from bench.plugins import make
from bench.serve.settings import KEY_VARIABLE
from bench.setting_checks import header_value
from bench.setting_files import write_config, write_environment
from bench.turns import MOST_COUNTED, count_turns, loop_name, sessions
from workloads.base import Workload, WorkloadError

FAILED, INTERRUPTED = 1, 130
NAME = "load"

USAGE = """\
usage: fragbench load url=http://HOST:PORT [key=value ...]

The traffic of a workload, by Locust, against a running server that speaks OpenAI's protocol (vLLM,
SGLang, TGI, llama.cpp, `fragbench serve`). Writes client/ (a row an attempt), requests/, scraped/
(the server's own gauges) and summary.json to out=DIR, else to a dated folder under results/.

Examples
  fragbench load url=http://127.0.0.1:8000 workload=chat workload.rate_rps=2
  fragbench load url=http://127.0.0.1:8000 model=my-model vocab_size=32000 workload=sharegpt
  fragbench load url=http://127.0.0.1:8000 stop_after_s=60 processes=2 \\
      workload=mixed workload/arrivals=closed_loop workload.arrivals.users=64
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
        return send_for_master(payload_of(config, container, config.load, None, None))
    check_ports(config.load)
    load = reach(config.load)
    try:
        workload: Workload = make(container["workload"], "workload")
        expected = check_traffic(workload, config)
    except WorkloadError as error:
        raise SettingError(str(error)) from error
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder, container)
    write_environment(folder, _environment(argv))
    console = make_console()
    started_s = time.monotonic()
    payload = payload_of(config, container, load, workload, expected)
    facts = _send(payload, folder, console)
    found = _figures(folder, load, facts)
    summary = _labels(container, load, workload) | facts | found | outcome(found, facts)
    summary["wall_s"] = time.monotonic() - started_s
    write_json(folder / "summary.json", summary)
    print_figures(summary, folder, console)
    if summary["cause"] == STOPPED:
        return INTERRUPTED
    return 0 if summary["status"] == "completed" else FAILED


def _composed(argv: list[str]) -> tuple[Config, dict[str, Any], Path]:
    arguments = [_in_full(argument) for argument in argv]
    # Neither a device nor an engine is looked for: the server has them.
    cells, folder = compose_cells([*arguments, *NO_ENGINE], ["fragbench", NAME, *argv])
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
    """The settings with what the server at `load.url` said of itself: its model, its vocabulary
    and whether it may be told lengths. Raises SettingError."""
    if load.url is None:
        raise SettingError(f"`fragbench {NAME}` needs a server: give url=http://HOST:PORT.")
    key = load.api_key or os.environ.get(KEY_VARIABLE)
    header_value(KEY_VARIABLE, key)
    served: Served = served_model(load.url, key, load.model)
    tell = served.by_fragbench if load.tell_lengths is None else load.tell_lengths
    return dataclasses.replace(
        load,
        model=served.name,
        api_key=key,
        tell_lengths=tell,
        vocab_size=load.vocab_size or served.vocab_size,
    )


def payload_of(
    config: Config,
    container: dict[str, Any],
    load: LoadSettings,
    workload: Workload | None,
    expected: int | None,
) -> Payload:
    """What Locust's processes are told of a run; `container` is its configuration as plain data,
    and of another machine's run there is no `workload`."""
    loop = None if workload is None else workload.closed_loop
    return Payload(
        load=load,
        workload=container["workload"],
        seed=config.seed,
        stop_after_s=config.stop_after_s,
        vocab_size=config.model.vocab_size,
        workers=load.expect_workers or load.processes,
        users=None if loop is None else loop.users,
        expected=expected,
        time_scale=config.time_scale,
    )


def check_traffic(workload: Workload, config: Config) -> int | None:
    """Requests that will be sent, later turns included; None if the run may end before.

    Raises WorkloadError for a workload without requests, and for beams, which no server of this
    protocol keeps.
    """
    for request in islice(sessions(workload, config.seed, config.stop_after_s), MOST_COUNTED):
        if request.survivors is not None:
            raise WorkloadError(
                f"workload={workload.name} asks for beams, which cannot be asked for over HTTP: "
                "choose workload=parallel_sampling."
            )
    expected = count_turns(workload, config.seed, config.stop_after_s)
    return expected if config.stop_after_s is None else None


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
    write_client_gaps(folder, attempts, load.warm_up_s, load.cool_down_s)
    found = figures(attempts, load.warm_up_s, load.cool_down_s)
    return found | {"warnings": warnings(found, facts)}


def _labels(container: dict[str, Any], load: LoadSettings, workload: Workload) -> dict[str, Any]:
    return {
        "name": container["name"],
        "url": load.url,
        "device": "server",
        "time": "measured",
        "backend": "server",
        "engine": "server",
        "workload": workload.name,
        "model": load.model,
        "seed": container["seed"],
        "loop": loop_name(workload),
    }


def _environment(argv: list[str]) -> dict[str, Any]:
    packages = ("fragbench", "locust", "gevent", "geventhttpclient", "numpy", "pyarrow")
    return {
        "command": ["fragbench", NAME, *argv],
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _help() -> str:
    path = CONF_FOLDER / "load" / "default.yaml"
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    settings = "\n".join(f"  {line.replace(': ', '=', 1)}" for line in lines)
    return USAGE.format(settings=settings, api_key=KEY_VARIABLE)
