"""The server of a driven run: told what to serve on stdin, it says where on stdout."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bench.cells import Cell
from bench.device.processes import die_with
from bench.errors import SettingError
from bench.serve import event_loop
from bench.serve.command import serve_cell


def main() -> int:
    """Serves until SIGTERM, or until the process that asked for it is gone."""
    asked: dict[str, Any] = json.load(sys.stdin)
    die_with(asked["parent"])
    cell = Cell(
        name=asked["config"]["name"],
        config=asked["config"],
        out=Path(asked["out"]),
        command=asked["command"],
        device=asked["device"],
    )
    try:
        return event_loop.run(serve_cell(cell, lambda line: _say({"url": line.rsplit(" ", 1)[1]})))
    except SettingError as error:
        _say({"cause": str(error)})
        return 2


def _say(what: dict[str, str]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    sys.exit(main())
