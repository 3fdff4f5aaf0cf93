"""The egress proxy: connects a sandbox with the hosts on its list, over TLS, at public or given addresses.

A connection passes four steps, each of which works on the result of the one before. Its request is parsed into a `Host`
and a port. The list decides. The hello is read, and the address is dialled. Bytes are relayed.
"""

import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import h11

from service.egress.allowlist import LARGEST_PORT, Allowlist, RefusedError, addresses_of
from service.egress.hello import NotTlsError, read_hello
from service.egress.http import AgentConnection
from service.egress.relay import join
from service.egress.server import SandboxServer
from service.network import Host, HostError, ProxyError, authority_of, dial, proxy_of
from service.text import printable

_PATIENCE_S: Final = 30.0
_MOST_REPORTED: Final = 50
"""The most refused hosts that one turn's log names."""


class Reporter:
    """Writes each refusal to a turn's log once, and not without end."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._reported: set[str] = set()

    def __call__(self, key: str, text: str) -> None:
        """Report a refusal, unless one with the same key was."""
        if key not in self._reported and len(self._reported) < _MOST_REPORTED:
            self._reported.add(key)
            self._say(printable(text))


class EgressProxy(SandboxServer):
    """Connects one agent with the hosts on its list, for one turn."""

    def __init__(self, path: Path, allowed: Sequence[str], report: Callable[[str, str], None]) -> None:
        self._allowed = Allowlist(allowed)
        self._report = report
        super().__init__(path)

    def serve(self, inside: socket.socket) -> None:
        """Connect the agent with the host that it asks for, if it may be reached."""
        inside.settimeout(_PATIENCE_S)
        connection = AgentConnection(inside)
        for request in connection.requests():
            try:
                host, port = parse_target(request)
                proxy = proxy_of("https", host, port)
                fixed = self._allowed.decide(host, port)
                addresses = addresses_of(host, port, fixed, by_name=proxy is not None)
            except (RefusedError, ProxyError) as error:
                self._report(str(error), f"egress: {error}")
                connection.refuse(403, f"egress: {error}", is_json=False)
                return
            begun = connection.tunnel()
            try:
                hello = read_hello(inside, begun, host)
            except NotTlsError as error:
                reason = f"egress: a connection to {host.text} was refused: {error}"
                self._report(reason, reason)
                return
            until = time.monotonic() + _PATIENCE_S
            try:
                outside = dial(addresses, until) if proxy is None else proxy.tunnel(authority_of(*addresses[0]), until)
            except OSError as error:
                self._report(host.text, f"egress: {host.text} cannot be reached: {error.strerror or error}")
                return
            self.register(outside)
            try:
                outside.sendall(hello)
                inside.settimeout(None)
                outside.settimeout(None)
                join(inside, outside)
            finally:
                self.release(outside)
            return


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
    if not port.isdigit() or not 0 < int(port[:6]) <= LARGEST_PORT:
        raise RefusedError(f"{target[:300]} was refused: a port is missing")
    return host, int(port)
