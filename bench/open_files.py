"""How many files and connections a process may have open."""

from __future__ import annotations

import resource


def allow_many_connections() -> None:
    """As many as this process may allow itself: the usual limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
