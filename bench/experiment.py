"""`fragbench run` and `fragbench matrix`: from Hydra overrides to cells that run.

A run is a matrix of one cell. Hydra composes and sweeps; what it composed is kept here, by the task
function for a run and by our launcher plug-in (plugin_path/) for a sweep, and runs when Hydra is
done, several cells at a time (bench/cells.py).
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict
from rich.console import Console

import conf
from bench import config as schema
from bench.cells import Cell, check_cells, run_cells
from bench.cluster.arguments import CHOICE, Launcher, read_launcher
from bench.cluster.job import run_cell
from bench.cluster.launch import launch
from bench.cluster.shared import HANDED_OUT
from bench.errors import SettingError
from bench.help_text import help_text
from bench.hugging_face.chosen import own_name, with_own_caches
from bench.hydra_errors import HYDRA_ERRORS, sentence
from bench.repeat import with_earlier_run
from bench.variants import check_single, variants
from bench.vllm.chosen import with_block_pool

CONF_FOLDER = Path(conf.__file__).parent
PLUGIN_PATH = Path(__file__).parent / "plugin_path"
"""Hydra takes plug-ins only from a namespace package, hydra_plugins, on sys.path."""
LAUNCHER_MODULE = "hydra_plugins.fragbench_launcher"
PLAIN_WIDTH = 130
"""Columns where the output is no terminal, whose width rich would take for 80."""

CPU_DEFAULTS = {"model": "tiny", "weight_dtype": "fp32", "kv_dtype": "fp32"}
"""What device=cpu takes unless it is told otherwise."""

CPU_KV_BUDGET = "64MiB"
"""For `tiny` on device=cpu: two sequences of its max_model_len, so that memory binds."""

CPU_REQUESTS = 9
"""Sent on device=cpu unless the traffic's end is given: `mixed` takes `tiny` about ten seconds."""

NO_ENGINE = ("++device=cpu", "++engine.name=inrepo", "++engine.one_at_a_time=false",
             "++engine.cache=null")  # fmt: skip
"""Of a command that runs none: neither a device nor an engine is looked for."""

_END_OF_TRAFFIC = {"workload.num_requests", "workload.duration_s", "stop_after_s"}

NO_LABEL = ("out", "jobs", "hydra")
SECTIONS = ("backend", "workload", "model", "gpu", "engine", "costs", "load", "serve", "vllm")


class _Composed(NamedTuple):
    """A configuration, and a cell's name in its sweep (None: a single run)."""

    config: DictConfig
    name: str | None


_composed: list[_Composed] = []


def run(argv: list[str]) -> int:
    """`fragbench run`: one experiment, or several with --multirun."""
    return _main("run", argv, [])


def matrix(argv: list[str]) -> int:
    """`fragbench matrix`: every combination of comma-separated values."""
    return _main("matrix", argv, ["--multirun"])


def _main(command: str, argv: list[str], options: list[str]) -> int:
    asked = parse_options(command, argv)
    if asked.help:
        print(help_text(command, CONF_FOLDER))
        return 0
    typed = ["fragbench", command, *argv]
    if asked.shows:  # Hydra would sweep rather than show
        compose_cells(argv, typed)
        return 0
    launcher = read_launcher(argv)
    if launcher.name is not None:  # a folder a job, beside what they are told
        options = ["--multirun"]
    cells, folder = compose_cells(
        [*options, *launcher.others], typed, again=True, here=launcher.name is None
    )
    if launcher.name is None:
        return run_cells(cells, make_console(), folder)
    return launch(launcher, cells, folder, make_console(), _sweep)


def _sweep(launcher: Launcher, cells: Sequence[Cell], folder: Path) -> None:
    """Has Hydra's launcher run cells that were handed out: a sweep over their names."""
    settings = {
        "hydra.job.name": "fragbench",
        "hydra.sweep.dir": _quoted(str(folder / HANDED_OUT)),
        "out": _quoted(str(folder)),
        "name": ",".join(_quoted(cell.name) for cell in cells),
    }
    _hydra(launcher.sweep(settings), run_cell)


def _quoted(text: str) -> str:
    return QuotedString(text, Quote.single).with_quotes()


def compose_cells(
    argv: list[str], command: list[str], *, again: bool = False, here: bool = True
) -> tuple[list[Cell], Path]:
    """The checked cells that overrides and Hydra's options ask for, and the folder for them; with
    `again`, also those that `repeats` and `sensitivity` add. Without `here` they are for other
    machines.

    None at all if Hydra showed something instead. Raises SettingError.
    """
    _composed.clear()
    try:
        _compose(argv)
        cells, folder = _cells(_composed, command, again=again)
        if cells:
            check_cells(cells, folder, here=here)
    except SettingError:
        raise
    except HYDRA_ERRORS as error:
        raise SettingError(sentence(error)) from error
    return cells, folder


class _Options(NamedTuple):
    """What is asked for instead of running."""

    help: bool
    shows: bool


def parse_options(command: str, argv: list[str]) -> _Options:
    """Reads Hydra's options as Hydra will, for one line instead of its usage if one is wrong."""
    parser = get_args_parser()
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parsed = parser.parse_intermixed_args(argv)
    except SystemExit as stop:
        if not stop.code:  # --version
            raise
        why = said.getvalue().strip().splitlines()[-1].partition("error: ")[2]
        raise SettingError(f"{why}: `fragbench {command} --help` says what is allowed.") from None
    if parsed.experimental_rerun:
        raise SettingError("--experimental-rerun needs Hydra's own output, which is not written.")
    shows = parsed.cfg or parsed.info or parsed.hydra_help or parsed.shell_completion
    return _Options(parsed.help, bool(shows))


def _compose(argv: list[str]) -> None:
    """Has Hydra compose all cells into `_composed`. Raises Hydra's errors."""
    with tempfile.TemporaryDirectory(prefix="fragbench-") as scratch:
        # Hydra writes multirun.yaml before anything is checked; results go where `out` says.
        aside = f"hydra.sweep.dir={scratch}"
        given = any(argument.startswith("hydra.sweep.dir=") for argument in argv)
        composing = with_earlier_run(_with_cpu_defaults(argv), SECTIONS, Path(scratch))
        _hydra(composing if given else [*composing, aside], _task)


def _hydra(argv: Sequence[str], task: TaskFunction) -> None:
    """Has Hydra call `task`. Raises its errors."""
    schema.register()
    if str(PLUGIN_PATH) not in sys.path:
        sys.path.append(str(PLUGIN_PATH))
    # Hydra looks for plug-ins at its first use in a process, which may have been before.
    plugins = import_module(LAUNCHER_MODULE)
    for plugin in (plugins.CellLauncher, plugins.CellSweeper):
        Plugins.instance().register(plugin)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that errors reach us, not Hydra's printer
    with _arguments(_options_first(argv)):
        hydra.main(version_base="1.3", config_path=str(CONF_FOLDER), config_name="config")(task)()


def _options_first(argv: Sequence[str]) -> list[str]:
    """Hydra takes overrides only in one row, and options before or after it."""
    overrides = list(get_args_parser().parse_intermixed_args(argv).overrides)
    left, options = iter(overrides), []
    expected = next(left, None)
    for argument in argv:
        if argument == expected:
            expected = next(left, None)
        else:
            options.append(argument)
    return [*options, *overrides]


def _with_cpu_defaults(argv: list[str]) -> list[str]:
    """On a CPU the model is computed: one that it can, with memory and traffic to match, unless
    others are asked for."""
    pairs = [argument.partition("=") for argument in argv]
    given = {key: value for key, _, value in pairs}
    if "device=cpu" not in argv or "experiment" in given or "from" in given:
        return argv
    defaults = dict(CPU_DEFAULTS)
    if given.get("model", "tiny") == "tiny" and "utilization" not in given:
        defaults["kv_budget"] = CPU_KV_BUDGET
    if not given.keys() & _END_OF_TRAFFIC and _counts_requests(given.get("workload", "mixed")):
        defaults["workload.num_requests"] = str(CPU_REQUESTS)
    return [*argv, *(f"{key}={value}" for key, value in defaults.items() if key not in given)]


def _counts_requests(workloads: str) -> bool:
    """Whether all options named have a setting for how many requests there are."""
    files = [CONF_FOLDER / "workload" / f"{name}.yaml" for name in workloads.split(",")]
    return all(file.is_file() and "\nnum_requests:" in file.read_text("utf-8") for file in files)


@contextlib.contextmanager
def _arguments(argv: list[str]) -> Iterator[None]:
    before = sys.argv
    sys.argv = ["fragbench", *argv]
    try:
        yield
    finally:
        sys.argv = before


def _task(composed: DictConfig) -> None:
    """What Hydra calls for a run; a sweep goes to our launcher (`take_sweep`)."""
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        raise SettingError(f"{CHOICE}=... is for the command line: no preset can choose it.")
    _composed.append(_Composed(_without_hydra(composed), None))


def take_sweep(
    context: HydraContext, config: DictConfig, job_overrides: Sequence[Sequence[str]]
) -> None:
    """Composes the cells of a sweep, to be run when Hydra is done."""
    loader = context.config_loader
    for name, overrides in zip(_names(job_overrides), job_overrides, strict=True):
        composed = loader.load_sweep_config(config, list(overrides))
        _composed.append(_Composed(_without_hydra(composed), name))


def _without_hydra(composed: DictConfig) -> DictConfig:
    ours = composed.copy()
    with open_dict(ours):
        ours.pop("hydra", None)
    return ours


def _cells(
    composed: Sequence[_Composed], command: list[str], *, again: bool
) -> tuple[list[Cell], Path]:
    """Cells with all of their settings, and the folder that holds them. Raises SettingError."""
    configs = [with_block_pool(with_own_caches(_plain(one.config))) for one in composed]
    if not configs:
        return [], Path()
    outs = {config["out"] for config in configs}
    if len(outs) > 1:
        raise SettingError(
            f"out has several values ({', '.join(sorted(map(str, outs)))}): give one folder, in "
            "which each cell gets its own."
        )
    out = outs.pop()
    folder = Path(out).expanduser() if out else _dated_folder()
    cells: list[Cell] = []
    for config, name in _named(configs, composed):
        own = folder / name if name else folder
        called = name or config["name"] or config["backend"].get("name") or "run"
        if not again:
            check_single(config)
        for apart, variant in variants(config):
            variant["name"] = f"{called},{apart}" if apart else called
            place = own / apart if apart else own
            cells.append(Cell(name=variant["name"], config=variant, out=place, command=command))
    folders = [cell.out for cell in cells]
    twice = next((cell.name for cell in cells if folders.count(cell.out) > 1), None)
    if twice:
        raise SettingError(f"two cells of the sweep are the same ({twice}): give each value once.")
    return cells, folder


def _named(
    configs: Sequence[dict[str, Any]], composed: Sequence[_Composed]
) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Configurations with their names in the sweep. An engine with caches of its own is there once,
    however many backends there are beside it."""
    seen: set[str | None] = set()
    for config, (_, name) in zip(configs, composed, strict=True):
        own = config["engine"]["cache"] is not None
        if own or config["engine"]["name"] == "vllm":
            name = own_name(name, config["backend"]["name"], follows_settings=not own)
            if name is not None and name in seen:
                continue
            seen.add(name)
        yield config, name


def _plain(composed: DictConfig) -> dict[str, Any]:
    """Plain data, every setting there and resolved. Raises OmegaConf's errors or SettingError."""
    # Merged anew, so that a key that the user deleted is back and one that was added is refused.
    whole = OmegaConf.merge(OmegaConf.structured(schema.Config), composed)
    container = OmegaConf.to_container(whole, resolve=True, throw_on_missing=True)
    assert isinstance(container, dict)
    config = {str(key): value for key, value in container.items()}
    for section in SECTIONS:
        if not isinstance(config[section], dict):
            raise SettingError(
                f"{section}={config[section]} is no group of settings: choose an option of "
                f"`{section}`, as `fragbench run --help` lists them."
            )
    return config


def make_console() -> Console:
    """The terminal, or wide enough lines for a file."""
    found = Console()
    return found if found.is_terminal else Console(width=PLAIN_WIDTH)


def _dated_folder() -> Path:
    """results/DATE/TIME, numbered if another run began in the same second."""
    folder = Path("results") / time.strftime("%Y-%m-%d") / time.strftime("%H-%M-%S")
    taken = 1
    while folder.exists():
        taken += 1
        folder = folder.with_name(f"{folder.name.split('.')[0]}.{taken}")
    return folder


def _names(job_overrides: Sequence[Sequence[str]]) -> list[str]:
    """A name a cell, made of what the sweep varies: backend=paged,seed=1."""
    parser = OverridesParser.create()
    rows = [parser.parse_overrides(list(overrides)) for overrides in job_overrides]
    values = [
        {o.get_key_element(): _said(o.get_value_element_as_str()) for o in row} for row in rows
    ]
    varied = [
        key
        for key in values[0]
        if len({row[key] for row in values}) > 1 and key.split(".")[0] not in NO_LABEL
    ]
    keys = varied or [key for key in values[0] if key in ("backend", "workload")]
    names = [",".join(f"{key}={row[key]}" for key in keys) or "run" for row in values]
    return [name.replace("/", "_") for name in names]


def _said(value: str) -> str:
    """A value as a folder may be called: a list's parts, or "none"."""
    if value.startswith("[") and value.endswith("]"):
        return value[1:-1].replace(",", "+") or "none"
    return value
