"""A process of Locust's: `python -m bench.load.process master | worker HOST PORT`.

Locust replaces sockets and threads when it is imported: it has its processes to itself.
"""

from __future__ import annotations

import os
import sys

from bench.device.processes import die_with

PARENT = "FRAGBENCH_LOAD_PARENT"
"""The process that started this one; with it these end."""


def main(role: str, *where: str) -> None:
    """Runs until the run is over."""
    if PARENT in os.environ:
        die_with(int(os.environ[PARENT]))
    if role == "master":
        from bench.load.master import main as master

        master()
    else:
        from bench.load.worker import run_worker

        host, port = where
        run_worker(host, int(port))


if __name__ == "__main__":
    main(*sys.argv[1:])
