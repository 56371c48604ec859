"""What a function of a test's file says in another process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def said_elsewhere(file: str, call: str, hash_seed: int) -> str:
    """What `call`, of the test `file` as `t`, is there, with that seed of Python's hashes."""
    path = Path(file)
    script = f"import {path.stem} as t; print(t.{call})"
    folders = os.pathsep.join((str(REPOSITORY), str(path.parent)))
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": folders}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()
