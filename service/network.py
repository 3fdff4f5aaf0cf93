"""Hosts, addresses and connections. A host is parsed once; only the parsed `Host` is matched, resolved and dialled."""

import contextlib
import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import SplitResult

_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LONGEST_NAME: Final = 253
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = ipaddress.ip_network("2000::/3")
"""The range of all public IPv6 addresses."""
_PORTS: Final = {"https": 443, "http": 80}
_SHORTEST_S: Final = 0.01
"""A timeout of zero would mean not to wait at all."""
Address = tuple[str, int]
"""An IP address and a port."""


class HostError(ValueError):
    """A text is not the name of a host."""


@dataclass(frozen=True, slots=True)
class Host:
    """A DNS name in lower case without a trailing dot, or an IP address."""

    text: str
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a name (letters, digits, hyphens, underscores and dots) or an address, with or without brackets.

        Raises:
            HostError: It is neither. Also refused are other spellings of addresses (`0x7f.1`, `2130706433`), zones
                (`fe80::1%eth0`), and letters outside ASCII, which must be written as `xn--…`.
        """
        bare = text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text
        if bare.isascii() and "%" not in bare:
            with contextlib.suppress(ValueError):
                ip = ipaddress.ip_address(bare)
                return cls(str(ip), ip)
        name = text.lower().removesuffix(".")
        if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name) or _NUMBER.fullmatch(name.rpartition(".")[2]):
            raise HostError(f"{text[:_LONGEST_NAME]!r} is not a host name")
        return cls(name, None)


def resolve(host: Host, port: int) -> list[Address]:
    """Return the addresses of a host.

    Raises:
        OSError: The host has no address.
    """
    if host.ip is not None:
        return [(host.text, port)]
    return [(str(one[4][0]), port) for one in socket.getaddrinfo(host.text, port, type=socket.SOCK_STREAM)]


def is_public(address: str) -> bool:
    """Whether an address is public; an IPv4 address embedded in it must be public as well."""
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


def dial(addresses: Sequence[Address], until: float) -> socket.socket:
    """Connect to the first address that answers before an instant (monotonic seconds).

    Raises:
        OSError: None of them answered.
    """
    for left, address in zip(range(len(addresses), 1, -1), addresses, strict=False):
        with contextlib.suppress(OSError):
            # An address that does not answer must leave the others a share of the time.
            return socket.create_connection(address, max(_SHORTEST_S, (until - time.monotonic()) / left))
    return socket.create_connection(addresses[-1], max(_SHORTEST_S, until - time.monotonic()))


def connect(parts: SplitResult, until: float, addresses: Sequence[Address] | None = None) -> socket.socket:
    """Connect to the host of an http or https URL before an instant (monotonic seconds).

    If `addresses` are given, only these are dialled. The socket keeps a timeout.

    Raises:
        HostError: The URL has no valid host.
        OSError: The host cannot be reached, or its certificate is not valid.
    """
    host = Host.parse(parts.hostname or "")
    context = ssl.create_default_context() if parts.scheme == "https" else None
    link = dial(resolve(host, port_of(parts)) if addresses is None else addresses, until)
    # Applies to each step of the handshake and to the exchange after it.
    link.settimeout(max(_SHORTEST_S, until - time.monotonic()))
    return link if context is None else context.wrap_socket(link, server_hostname=host.text)


def port_of(parts: SplitResult) -> int:
    """Return the port of an http or https URL."""
    return parts.port or _PORTS[parts.scheme]


@contextlib.contextmanager
def cut_off(after_s: float, socket_of: Callable[[], socket.socket | None]) -> Iterator[None]:
    """Shut a socket down if the block takes longer, so that a pending read or write fails or returns.

    The socket's own timeout starts again with each byte, and so never stops a peer that sends byte by byte.
    """

    def shut_down() -> None:
        open_socket = socket_of()
        if open_socket is not None:
            with contextlib.suppress(OSError):
                # Not the TLS wrapper's own method: after it, the connection would continue in clear text.
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)

    timer = threading.Timer(after_s, shut_down)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
