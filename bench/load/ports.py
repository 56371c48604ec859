"""Whether Locust's master can listen where its settings say, found before anything is written."""

from __future__ import annotations

import errno
import os
import socket

from bench.errors import SettingError
from bench.load.settings import LoadSettings


def check_ports(load: LoadSettings) -> None:
    """Raises SettingError for an address that is not this machine's or a port that is taken."""
    _check("load.master_port", load.bind_host, load.master_port)
    if load.web_ui:
        _check("load.web_port", load.bind_host, load.web_port)


def _check(setting: str, host: str, port: int) -> None:
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        raise SettingError(_sentence(setting, host, port, error)) from error


def _sentence(setting: str, host: str, port: int, error: OSError) -> str:
    if error.errno in (errno.EADDRINUSE, errno.EACCES):
        why = os.strerror(error.errno).lower()
        return f"{setting}={port} cannot be listened at on {host} ({why}): give another port."
    return (
        f"load.bind_host={host} is no address of this machine: give one that it has, such as "
        "127.0.0.1, or 0.0.0.0 for all of them."
    )
