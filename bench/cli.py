"""The `fragbench` command: a word that says what to do, then that command's own arguments."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import NamedTuple

from bench import phases  # noqa: F401 - first, since it notes when the command began
from bench.errors import SettingError


class Command(NamedTuple):
    """Where a command lives (imported only when asked for) and what it is for."""

    function: str
    help: str


COMMANDS = {
    "run": Command("bench.experiment:run", "one experiment: group=option key=value ..."),
    "serve": Command("bench.serve.command:main", "an OpenAI-compatible server: port=8000 ..."),
    "matrix": Command("bench.experiment:matrix", "a sweep: backend=a,b workload=c,d ..."),
    "soak": Command("bench.soak.command:main", "a run of hours, restarted: duration=6h ..."),
    "report": Command("bench.report.command:main", "result folders -> report.html and figures"),
    "compare": Command(
        "bench.report.compare_command:main", "two result sets: what moved: A B fail_over=5%"
    ),
    "export": Command("bench.exports.command:main", "results for other programs: DIR to=csv,latex"),
    "incident": Command(
        "bench.incidents.command:main", "why allocations failed, by layer: DIR owner.platform=..."
    ),
    "figure": Command("bench.paper.command:main", "a published figure beside ours: fig2, fig13"),
    "kernels": Command("bench.kernels.command:main", "attention kernels on a GPU: batches=1,8 ..."),
    "gpu-check": Command("bench.gpu_check.command:main", "what only a GPU can show, in 10 minutes"),
    "workload": Command(
        "bench.traffic.command:main", "traffic before it runs, or fitted to a trace: NAME fit=FILE"
    ),
    "plan": Command("bench.plan.command:main", "deployment questions answered before a run"),
    "load": Command("bench.load.command:main", "traffic against a running server: url=http://..."),
    "replay": Command(
        "bench.snapshots.command:main", "a memory snapshot under other allocator settings: SNAPSHOT"
    ),
    "exercise": Command("bench.exercise.command:main", "understand memory: a, b, c, d or e"),
    "exec": Command("bench.device.exec:main", "a PyTorch program on a virtual GPU: -- COMMAND"),
}

USAGE_ERROR = 2
INTERRUPTED = 130


def main(argv: list[str] | None = None) -> int:
    """Runs a command; returns its exit code: 0 done, 1 a run failed, 2 a wrong setting."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments:
        print(_help(), file=sys.stderr)
        return USAGE_ERROR
    name, *rest = arguments
    if name in ("-h", "--help", "help"):
        print(_help())
        return 0
    if name in ("-V", "--version"):
        print(f"fragbench {version('fragbench')}")
        return 0
    try:
        return _function(name)(rest)
    except SettingError as error:
        print(f"fragbench: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        print("fragbench: stopped at once.", file=sys.stderr)
        return INTERRUPTED


def _function(name: str) -> Callable[[list[str]], int]:
    if name not in COMMANDS:
        known = ", ".join(COMMANDS)
        raise SettingError(f"{name} is no command: choose one of {known}.")
    module, _, function = COMMANDS[name].function.partition(":")
    return getattr(import_module(module), function)  # type: ignore[no-any-return]


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  fragbench {name:{width}}  {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "What the way an LLM server allocates its KV cache costs, on real traffic.",
            "",
            *lines,
            "",
            "`fragbench run --help` explains settings; `fragbench run --cfg job` shows them all.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
