"""Hosts and addresses. A host is parsed once; only the parsed `Host` is matched, resolved and dialled."""

import contextlib
import ipaddress
import re
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LONGEST_NAME: Final = 253
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = ipaddress.ip_network("2000::/3")
"""The range of all public IPv6 addresses."""
_SHORTEST_S: Final = 0.01
"""A timeout of zero would mean: without waiting."""
Address = tuple[str, int]
"""An IP address and a port."""


class HostError(ValueError):
    """A text names no host."""


@dataclass(frozen=True, slots=True)
class Host:
    """A DNS name in lower case, without the dot at its end, or an IP address."""

    text: str
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a name (letters, digits, hyphens, underscores and dots) or an address, in brackets or without.

        Raises:
            HostError: It is neither. That includes what resolvers read as an address (`0x7f.1`, `2130706433`), a zone
                (`fe80::1%eth0`), and letters outside ASCII, which have to be written as `xn--…`.
        """
        bare = text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text
        if bare.isascii() and "%" not in bare:
            with contextlib.suppress(ValueError):
                ip = ipaddress.ip_address(bare)
                return cls(str(ip), ip)
        name = text.lower().removesuffix(".")
        if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name) or _NUMBER.fullmatch(name.rpartition(".")[2]):
            raise HostError(f"{text[:_LONGEST_NAME]!r} is no host name")
        return cls(name, None)


def resolve(host: Host, port: int) -> list[Address]:
    """Return the addresses of a host.

    Raises:
        OSError: It has none.
    """
    if host.ip is not None:
        return [(host.text, port)]
    return [(str(one[4][0]), port) for one in socket.getaddrinfo(host.text, port, type=socket.SOCK_STREAM)]


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


def dial(addresses: Sequence[Address], until: float) -> socket.socket:
    """Connect to the first address that answers until an instant (monotonic seconds).

    Raises:
        OSError: None did.
    """
    for address in addresses[:-1]:
        with contextlib.suppress(OSError):
            return socket.create_connection(address, max(_SHORTEST_S, until - time.monotonic()))
    return socket.create_connection(addresses[-1], max(_SHORTEST_S, until - time.monotonic()))
