"""HTTP connections that are opened ahead, used again and never limited in number.

What the kernel says of when bytes came is taken rather than when this process came to read them: a
client that is busy for a moment does not measure it. The kernel tells the time of the last of them:
what came in several pieces before it was read has that one's, too late for all but the last.
"""

from __future__ import annotations

import socket as constants
import ssl
import struct
import time
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from gevent import socket
from gevent.ssl import SSLSocket, create_default_context
from geventhttpclient.response import HTTPResponse

LEAST_WAIT_S = 1e-4
"""A timeout of 0 would not wait for the loop at all."""
READ_BYTES = 1 << 16
CONNECT_TIMEOUT_S = 10.0
_SO_TIMESTAMPNS = 35  # Linux; Python has no name for it
_TIMESPEC = struct.Struct("@qq")
_ANCILLARY_BYTES = constants.CMSG_SPACE(_TIMESPEC.size)


class Server(NamedTuple):
    """Where requests go. `base` is what its paths start with."""

    host: str
    port: int
    tls: bool
    base: str

    @classmethod
    def at(cls, url: str) -> Server:
        """Of an address that was checked; a /v1 at its end is taken as meant, not as a path."""
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        assert parts.hostname is not None
        base = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, parts.port or (443 if tls else 80), tls, base)

    @property
    def name(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Connection:
    """One connection. `idled` says whether it stood before the request that it is taken for,
    `handshake_s` how long it took to make: about the way to the server and back."""

    def __init__(self, wire: Any, handshake_s: float = 0.0) -> None:
        self.idled = False
        self.handshake_s = handshake_s
        self._wire = wire
        self._last_s = time.monotonic()
        self._stamped = not isinstance(wire, SSLSocket) and _stamp_arrivals(wire)

    def send(self, content: bytes, timeout_s: float) -> None:
        """Raises TimeoutError, OSError."""
        self._last_s = time.monotonic()
        self._wire.settimeout(max(timeout_s, LEAST_WAIT_S))
        self._wire.sendall(content)

    def receive(self, most: int, timeout_s: float) -> tuple[bytes, float]:
        """What came, `most` bytes at once, and when; nothing if the other side closed.

        Raises TimeoutError, OSError.
        """
        self._wire.settimeout(max(timeout_s, LEAST_WAIT_S))
        if self._stamped:
            content, ancillary, _, _ = self._wire.recvmsg(most, _ANCILLARY_BYTES)
        else:
            content, ancillary = self._wire.recv(most), []
        now_s = time.monotonic()
        # The stamp is of the machine's clock, which may be set; nothing came before what came last.
        self._last_s = min(max(now_s - _age_s(ancillary), self._last_s), now_s)
        return content, self._last_s

    @property
    def alive(self) -> bool:
        """Whether the server left an idle connection open and sent nothing over it."""
        try:
            self._wire.setblocking(False)
            self._wire.recv(1)  # closed, or out of step, if it gives anything at all
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """Leaves: what was not read yet makes the kernel reset the connection."""
        self._wire.close()


class Connections:
    """Idle connections to one server, the last used first."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._idle: list[Connection] = []
        self._tls = create_default_context() if server.tls else None

    def open(self, receive_buffer_bytes: int | None = None) -> Connection:
        """A new connection; its buffer must be small before it is made, or the kernel offers the
        other side more. Raises OSError."""
        host, port = self.server.host, self.server.port
        error: OSError | None = None
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=constants.SOCK_STREAM
        ):
            wire = socket.socket(family, kind, protocol)
            try:
                return self._connect(wire, address, receive_buffer_bytes)
            except OSError as refused:
                wire.close()
                error = refused
        assert error is not None
        raise error

    def _connect(self, wire: Any, address: Any, receive_buffer_bytes: int | None) -> Connection:
        if receive_buffer_bytes:
            wire.setsockopt(constants.SOL_SOCKET, constants.SO_RCVBUF, receive_buffer_bytes)
        wire.settimeout(CONNECT_TIMEOUT_S)
        asked_s = time.monotonic()
        wire.connect(address)
        handshake_s = time.monotonic() - asked_s
        wire.setsockopt(constants.IPPROTO_TCP, constants.TCP_NODELAY, 1)
        if self._tls is not None:
            wire = self._tls.wrap_socket(wire, server_hostname=self.server.host)
        return Connection(wire, handshake_s)

    def take(self) -> Connection:
        """An idle connection that still lives, else a new one. Raises OSError."""
        while self._idle:
            connection = self._idle.pop()
            if connection.alive:
                return connection
            connection.close()
        return self.open()

    def give_back(self, connection: Connection) -> None:
        """A connection whose answer was read to its end, or that was opened ahead."""
        connection.idled = True
        self._idle.append(connection)

    def close(self) -> None:
        """Closes the idle ones."""
        while self._idle:
            self._idle.pop().close()


class Response(HTTPResponse):
    """An answer's status, headers and body out of bytes as they arrive."""

    def take_body(self) -> bytes:
        """The body that came since the last call."""
        body = bytes(self._body_buffer)
        self._body_buffer.clear()
        return body


def _stamp_arrivals(wire: Any) -> bool:
    try:
        wire.setsockopt(constants.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def _age_s(ancillary: list[tuple[int, int, bytes]]) -> float:
    """How long ago the last of the bytes just read came, by the machine's clock."""
    for level, kind, content in ancillary:
        if level == constants.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, ns = _TIMESPEC.unpack(content)
            return float(time.time_ns() - seconds * 1_000_000_000 - ns) * 1e-9
    return 0.0
