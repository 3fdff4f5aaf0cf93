"""The egress proxy: connects a sandbox with the hosts on its list, over TLS, at public or given addresses."""

import contextlib
import ipaddress
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from service.egress.door import Door
from service.egress.relay import join
from service.errors import ServiceError
from service.text import printable

_LONGEST_HEAD: Final = 16_384
_PATIENCE_S: Final = 30.0
_TLS_PORT: Final = 443
_TOLD: Final = 50
"""The most refused hosts that one turn's log names."""
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = ipaddress.ip_network("2000::/3")
"""The range of all public IPv6 addresses."""
_HEADER, _RECORD_HEADER = 4, 5
_MAJOR_VERSION: Final = 3
_LONGEST: Final = 1 << 16
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_ENCRYPTED_HELLO: Final = 0xFE0D
Address = tuple[str, int]


def public_addresses(host: str, port: int) -> list[Address]:
    """Return a host's addresses, without those of this machine, its networks, or a cloud's metadata service.

    Raises:
        OSError: It has no address.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(str(one[4][0]), port) for one in found if is_public(str(one[4][0]))]


def is_public(address: str) -> bool:
    """Whether an address is public; an IPv4 address embedded in it has to be public as well."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if ip not in _GLOBAL_UNICAST:
            return False
    return ip.is_global and not ip.is_multicast


class NotTlsError(ServiceError):
    """The bytes are not TLS, or hide the server's name."""


class RefusedError(ServiceError):
    """A host may not be reached; the text says why."""


class EgressProxy(Door):
    """Connects one agent with the hosts on its list, for one turn."""

    def __init__(self, path: Path, allowed: Sequence[str], say: Callable[[str], None]) -> None:
        self._allowed = tuple(allowed)
        self._say = say
        self._told: set[str] = set()
        super().__init__(path)

    def allows(self, host: str, port: int) -> bool:
        """Whether an entry of the list matches the host, by name or `*.` pattern, and the port (443 if it has none)."""
        return any(found == port for found, _ in self._listed(host))

    def _listed(self, host: str) -> Iterator[tuple[int, str]]:
        """Yield the port of each entry for a host, and the address that it gives, or an empty text."""
        for entry in self._allowed:
            place, _, address = entry.partition("=")
            name, _, given = place.partition(":")
            if host.endswith(name[1:]) if name.startswith("*.") else host == name:
                yield int(given or _TLS_PORT), address or (name if _is_address(name) else "")

    def _addresses(self, host: str, port: int) -> list[Address]:
        """Return where a host is dialled.

        Raises:
            RefusedError: It may not be reached.
        """
        entry = host if port == _TLS_PORT else f"{host}:{port}"
        listed = list(self._listed(host))
        given = [address for found, address in listed if found == port]
        if not given:
            ports = ", ".join(sorted({str(found) for found, _ in listed}))
            why = f" (it is listed for port {ports})" if ports else ""
            raise RefusedError(f'{entry} was refused{why}; to allow it, add it to the agent: egress = ["{entry}"]')
        if address := next(filter(None, given), None):
            return [(address, port)]
        try:
            if addresses := public_addresses(host, port):
                return addresses
            there = str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])
        except OSError as error:
            raise RefusedError(f"{host} was refused: it has no address ({error})") from error
        raise RefusedError(
            f"{host} was refused: its address {there} is not public; if the agent may reach it, allow that address: "
            f'egress = ["{host}:{port}={there}"]'
        )

    def serve(self, inside: socket.socket) -> None:
        """Connect the agent with the host that it asks for, if it may be reached."""
        inside.settimeout(_PATIENCE_S)
        head = b""
        while b"\r\n\r\n" not in head:
            piece = inside.recv(1)
            if not piece or len(head) > _LONGEST_HEAD:
                raise ConnectionError("ended early")
            head += piece
        host, port = _target(head)
        addresses: list[Address] = []
        refusal = None
        if port is None:
            refusal = f"{host} was refused: only TLS (https) leaves the sandbox"
        else:
            try:
                addresses = self._addresses(host, port)
            except RefusedError as error:
                refusal = str(error)
        if refusal is not None:
            self._tell(host, f"egress: {refusal}")
            text = f"egress: {refusal}\n".encode()
            inside.sendall(
                b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(text) + text
            )
            return
        inside.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            # A program that asks for an address names no server.
            hello, name = read_hello(inside, unnamed=host if _is_address(host) else None)
            if name != host:
                raise NotTlsError(f"it asks for {name}")  # noqa: TRY301 — as if there were none
        except NotTlsError as reason:
            self._tell(f"{host} ({reason})", f"egress: a connection to {host} was refused: {reason}")
            return
        outside = _dial(addresses)
        self.register(outside)
        try:
            outside.sendall(hello)
            inside.settimeout(None)
            outside.settimeout(None)
            join(inside, outside)
        finally:
            self.release(outside)

    def _tell(self, key: str, text: str) -> None:
        if key not in self._told and len(self._told) < _TOLD:
            self._told.add(key)
            self._say(printable(text))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _target(head: bytes) -> tuple[str, int | None]:
    """Return the host and port of a request; no port unless it is a CONNECT."""
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    target = rest.partition(" ")[0]
    if method != "CONNECT":
        return target.partition("://")[2].partition("/")[0] or target, None
    host, _, port = target.rpartition(":")
    return host.strip("[]").rstrip(".").lower()[:253], int(port) if port.isascii() and port.isdigit() else None


def _dial(addresses: Sequence[Address]) -> socket.socket:
    """Connect to the first address that answers; the name is not resolved again, as its address could change."""
    for address in addresses[:-1]:
        with contextlib.suppress(OSError):
            return socket.create_connection(address, _PATIENCE_S)
    return socket.create_connection(addresses[-1], _PATIENCE_S)


def read_hello(connection: socket.socket, unnamed: str | None = None) -> tuple[bytes, str]:
    """Read a connection's first message; return all bytes that were read, and the name in it, in lower case.

    `unnamed` is the name if there is none in it; None: there has to be one.

    Raises:
        NotTlsError: It is not a TLS hello, or hides the server's name.
        OSError: The connection ended or timed out.
    """
    read = hello = b""
    while len(hello) < _HEADER or len(hello) < _HEADER + int.from_bytes(hello[1:4]):
        header = _exactly(connection, _RECORD_HEADER)
        length = int.from_bytes(header[3:5])
        if header[0] != _HANDSHAKE or header[1] != _MAJOR_VERSION or len(read) + length > _LONGEST:
            raise NotTlsError("it is not TLS")
        body = _exactly(connection, length)
        read, hello = read + header + body, hello + body
    if hello[0] != _CLIENT_HELLO:
        raise NotTlsError("it is not TLS")
    try:
        extensions = dict(_extensions(hello[_HEADER:]))
        if _ENCRYPTED_HELLO in extensions:
            raise NotTlsError("its server's name is encrypted")
        if unnamed is not None and _SERVER_NAME not in extensions:
            return read, unnamed
        # A list with one entry: its length, the kind, the name's length, the name.
        name = extensions[_SERVER_NAME][5:].decode("ascii")
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise NotTlsError("it names no server") from error
    return read, name.lower()


def _extensions(body: bytes) -> Iterator[tuple[int, bytes]]:
    at = 2 + 32
    at += 1 + body[at]
    at += 2 + int.from_bytes(body[at : at + 2])
    at += 1 + body[at]
    end = at + 2 + int.from_bytes(body[at : at + 2])
    at += 2
    while at + 4 <= end:
        length = int.from_bytes(body[at + 2 : at + 4])
        yield int.from_bytes(body[at : at + 2]), body[at + 4 : at + 4 + length]
        at += 4 + length


def _exactly(connection: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        piece = connection.recv(length - len(found))
        if not piece:
            raise ConnectionError("ended early")
        found += piece
    return found
