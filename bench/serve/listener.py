"""The listening socket and its connections."""

from __future__ import annotations

import asyncio
import logging
import socket

from aiohttp import web

from bench.errors import SettingError
from bench.open_files import allow_many_connections
from bench.serve.app import App, Connection

BACKLOG = 4096
SEND_BUFFER_BYTES = 4 << 10
WRITE_BUFFER_BYTES = 0
"""What is on its way to a client that does not read, the system's part doubled by it. Larger
buffers, which the system would give, take thousands of tokens before a slow reader is noticed."""

KEEP_ALIVE_S = 75.0
"""An idle connection, and one whose headers do not come, is closed after that."""

LINGER_S = 2.0
"""A refused body is read for so long, so that its sender sees the refusal."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises SettingError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.getaddrinfo(host, port, family)
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, ValueError) as error:  # ValueError: what no host is called
        why = getattr(error, "strerror", None) or error
        raise SettingError(
            f"serve.host={host} serve.port={port} cannot be listened on: {why}; choose another "
            "port, or port=0 for a free one."
        ) from error
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return listening


def address(listening: socket.socket) -> str:
    """Its URL."""
    host, port, *_ = listening.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Connection(Connection):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.WriteTransport)
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)


class Listener:
    """Connections that an App answers. A client that closes its connection cancels its request."""

    def __init__(self, app: App) -> None:
        self._connections = web.Server(app.handle, handler_cancellation=True)
        self._server: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        """Takes connections from now on."""
        allow_many_connections()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connect, sock=listening, backlog=BACKLOG)

    async def close(self, patience_s: float) -> None:
        """Takes no more, and ends those that are open after `patience_s`."""
        if self._server is not None:
            self._server.close()
        self._connections.pre_shutdown()
        await self._connections.shutdown(patience_s)

    def _connect(self) -> _Connection:
        return _Connection(
            self._connections,
            loop=asyncio.get_running_loop(),
            access_log=logging.getLogger("aiohttp.access"),
            keepalive_timeout=KEEP_ALIVE_S,
            lingering_time=LINGER_S,
        )
