"""An agent's access to the network, for one turn: the egress proxy, the model proxy, and the state of its model.

The egress proxy connects a sandbox with the hosts on its list, over TLS, at public or given addresses. A connection
passes four steps, each of which works on the result of the one before. Its request is parsed into a `Host` and a port.
The list decides. The hello is read, and the address is dialled. Bytes are relayed.
"""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import h11

from service.agents.allowlist import MAX_PORT, Entry, RefusedError, addresses_of, decide
from service.agents.options import AgentOptions
from service.agents.presets import allowed_models
from service.egress.budget import UsageMeter
from service.egress.http import AgentConnection, SandboxServer
from service.egress.model import ModelProxy, ModelState
from service.egress.relay import join
from service.network import Host, HostError, ProxyError, authority_of, dial, proxy_of
from service.settings import AgentLimits
from service.text import printable

_PATIENCE_S: Final = 30.0
_REPORTED_REFUSALS: Final = 50


class EgressProxy(SandboxServer):
    """Connects one agent with the hosts on its list, for one turn."""

    def __init__(self, path: Path, allowed: Sequence[str], report: Callable[[str, str], None]) -> None:
        """Listen; `report` gets a refusal's key, which it has in common with its repetitions, and its text."""
        self._allowed = [Entry.parse(entry) for entry in allowed]
        self._report = report
        super().__init__(path)

    def serve(self, inside: socket.socket) -> None:
        inside.settimeout(_PATIENCE_S)
        connection = AgentConnection(inside)
        if (request := next(connection.requests(), None)) is None:
            return
        try:
            host, port = parse_target(request)
            proxy = proxy_of("https", host, port)
            fixed = decide(self._allowed, host, port)
            addresses = addresses_of(host, port, fixed, by_name=proxy is not None)
        except (RefusedError, ProxyError) as error:
            self._report(str(error), f"egress: {error}")
            connection.refuse(403, f"egress: {error}", is_json=False)
            return
        begun = connection.tunnel()
        try:
            hello = read_hello(inside, begun, host)
        except RefusedError as error:
            reason = f"egress: a connection to {host.text} was refused: {error}"
            self._report(reason, reason)
            return
        until = time.monotonic() + _PATIENCE_S
        try:
            outside = dial(addresses, until) if proxy is None else proxy.tunnel(authority_of(*addresses[0]), until)
        except OSError as error:
            self._report(host.text, f"egress: {host.text} cannot be reached: {error.strerror or error}")
            return
        with self.closing(outside):
            outside.sendall(hello)
            inside.settimeout(None)
            outside.settimeout(None)
            join(inside, outside)


def parse_target(request: h11.Request) -> tuple[Host, int]:
    """Return the host and the port of a CONNECT.

    Raises:
        RefusedError: It is another request, or names no host.
    """
    target = request.target.decode("ascii")
    if request.method != b"CONNECT":
        shown = target.partition("://")[2].partition("/")[0] or target
        raise RefusedError(f"{shown[:253]} was refused: only TLS (https) leaves the sandbox")
    name, _, port = target.rpartition(":")
    try:
        host = Host.parse(name)
    except HostError as error:
        raise RefusedError(f"{target[:300]} was refused: {error}") from error
    if not port.isdigit() or not 0 < int(port[:6]) <= MAX_PORT:
        raise RefusedError(f"{target[:300]} was refused: a port is missing")
    return host, int(port)


_HEADER, _RECORD_HEADER = 4, 5
_MAJOR_VERSION: Final = 3
_MAX_HELLO_BYTES: Final = 1 << 16
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_ENCRYPTED_HELLO: Final = 0xFE0D


def read_hello(connection: socket.socket, begun: bytes, host: Host) -> bytes:
    """Read a connection's first message, of which `begun` has arrived; return all bytes once it names the host.

    A program that asks for an address may name no server.

    Raises:
        RefusedError: It is not a TLS hello, names another server, or hides the name.
        OSError: The connection ended or timed out.
    """
    read, hello, at = begun, b"", 0
    while len(hello) < _HEADER or len(hello) < _HEADER + int.from_bytes(hello[1:4]):
        read = _at_least(connection, read, at + _RECORD_HEADER)
        length = int.from_bytes(read[at + 3 : at + 5])
        if read[at] != _HANDSHAKE or read[at + 1] != _MAJOR_VERSION or not 0 < length <= _MAX_HELLO_BYTES - at:
            raise RefusedError("it is not TLS")
        read = _at_least(connection, read, at + _RECORD_HEADER + length)
        hello += read[at + _RECORD_HEADER : at + _RECORD_HEADER + length]
        at += _RECORD_HEADER + length
    if hello[0] != _CLIENT_HELLO:
        raise RefusedError("it is not TLS")
    try:
        entries = list(_extensions(hello[_HEADER : _HEADER + int.from_bytes(hello[1:4])]))
        extensions = dict(entries)
        if len(extensions) != len(entries):
            raise RefusedError("it names an extension twice")
        if _ENCRYPTED_HELLO in extensions:
            raise RefusedError("its server's name is encrypted")
        if host.ip is not None and _SERVER_NAME not in extensions:
            return read
        # A list with one entry: its length, the kind, the name's length, the name.
        entry = extensions[_SERVER_NAME]
        name = entry[5:]
        if entry[:5] != (len(name) + 3).to_bytes(2) + b"\0" + len(name).to_bytes(2):
            raise RefusedError("it names more than one server")
        named = Host.parse(name.decode("ascii"))
    except (IndexError, KeyError, UnicodeDecodeError, HostError, OverflowError) as error:
        raise RefusedError("it names no server") from error
    if named != host:
        raise RefusedError(f"it asks for {named.text}")
    return read


def _extensions(body: bytes) -> Iterator[tuple[int, bytes]]:
    rest = body[2 + 32 :]
    # The session, the ciphers and the compressions, each after its length.
    for width in (1, 2, 1):
        rest = rest[width + int.from_bytes(rest[:width]) :]
    if 2 + int.from_bytes(rest[:2]) != len(rest):
        raise IndexError("the lengths do not fit")
    rest = rest[2:]
    while rest:
        end = 4 + int.from_bytes(rest[2:4])
        if end > len(rest):
            raise IndexError("an extension is longer than the message")
        yield int.from_bytes(rest[:2]), rest[4:end]
        rest = rest[end:]


def _at_least(connection: socket.socket, read: bytes, length: int) -> bytes:
    while len(read) < length:
        piece = connection.recv(length - len(read))
        if not piece:
            raise ConnectionError("ended early")
        read += piece
    return read


PROXY_SOCKET: Final = "proxy.sock"
MODEL_SOCKET: Final = "model.sock"


@contextlib.contextmanager
def open_proxies(
    folder: Path | None, options: AgentOptions, limits: AgentLimits, say: Callable[[str], None], meter: UsageMeter
) -> Iterator[ModelState]:
    """Open the proxies of one turn; `folder` is for their sockets, None: the agent has no access."""
    model = ModelState(limits, meter.away_s, options.waits_s)
    reported: set[str] = set()

    def report(key: str, text: str) -> None:
        # Report each refusal once, and only a limited number.
        if key not in reported and len(reported) < _REPORTED_REFUSALS:
            reported.add(key)
            say(printable(text))

    with contextlib.ExitStack() as stack:
        if folder is not None:
            folder.mkdir(mode=0o700)
            stack.enter_context(EgressProxy(folder / PROXY_SOCKET, options.egress or (), report))
            if options.model is not None:
                path, models = folder / MODEL_SOCKET, allowed_models(options)
                stack.enter_context(ModelProxy(path, options.model, meter, model, models, report))
        yield model
