"""Which hosts an agent may reach: the entries of its `egress`, and the decision about one host and port."""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from service.errors import ServiceError
from service.network import Address, Host, is_public, resolve

TLS_PORT: Final = 443
MAX_PORT: Final = 65_535
_ENTRY: Final = re.compile(r"(?P<wild>\*\.)?(?P<host>[^:=*]+)(:(?P<port>[0-9]{1,5}))?(=(?P<address>[0-9a-f.:]+))?")
_PUBLIC_NAME: Final = re.compile(r".*\.[a-z][^.]*")


class RefusedError(ServiceError):
    """A host may not be reached; the text says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: a host (or all hosts below it), a port, and the only address to dial (None: any public one)."""

    host: Host
    is_wildcard: bool
    port: int
    address: str | None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an entry, such as `*.example.com:8443` or `registry.corp:8443=10.1.2.3`.

        Raises:
            ValueError: It is not a valid entry, or leads to a cloud's metadata service, which hands out credentials.
        """
        match = _ENTRY.fullmatch(text)
        if match is None or text != text.lower():
            raise ValueError("no such form")
        host = Host.parse(match["host"])
        port = int(match["port"] or TLS_PORT)
        fixed = ipaddress.ip_address(match["address"]) if match["address"] else host.ip
        is_named = host.ip is None and bool(_PUBLIC_NAME.fullmatch(host.text))
        # A host outside public DNS needs a port and an address, and a wildcard cannot have an address.
        if (fixed is None and not is_named) or (fixed is not None and (match["wild"] or not match["port"])):
            raise ValueError("no such form")
        if not 0 < port <= MAX_PORT or match["host"] != host.text:
            raise ValueError("no such port or host")
        ip = getattr(fixed, "ipv4_mapped", None) or fixed
        if ip is not None and (ip.is_link_local or ip.is_multicast or ip.is_unspecified):
            raise ValueError(f"no agent may reach {ip}")
        return cls(host, match["wild"] is not None, port, None if fixed is None else str(fixed))

    def fits(self, host: Host) -> bool:
        """Whether the entry covers a host; an address is never below a name."""
        if self.is_wildcard:
            return host.ip is None and host.text.endswith(f".{self.host.text}")
        return host == self.host


def decide(entries: Sequence[Entry], host: Host, port: int) -> str | None:
    """Return the only address to dial for a host that an agent with these entries may reach; None: any public one.

    Raises:
        RefusedError: It may not be reached.
    """
    about = [entry for entry in entries if entry.fits(host)]
    if addresses := [entry.address for entry in about if entry.port == port]:
        return next(filter(None, addresses), None)
    destination = host.text if port == TLS_PORT else f"{host.text}:{port}"
    ports = ", ".join(sorted({str(entry.port) for entry in about}))
    reason = f" (it is listed for port {ports})" if ports else ""
    raise RefusedError(
        f'{destination} was refused{reason}; to allow it, add it to the agent: egress = ["{destination}"]'
    )


def addresses_of(host: Host, port: int, fixed: str | None, *, by_name: bool = False) -> list[Address]:
    """Return where to dial: the fixed address, or the host's public ones, of no machine or network nearby.

    `by_name`: a proxy is given the name, which this machine may be unable to look up.

    Raises:
        RefusedError: The host has no usable address.
    """
    if fixed is not None:
        return [(fixed, port)]
    try:
        addresses = resolve(host, port)
    except OSError as error:
        if by_name:
            return [(host.text, port)]
        raise RefusedError(f"{host.text} was refused: it has no address ({error})") from error
    if public := [address for address in addresses if is_public(address[0])]:
        return [(host.text, port)] if by_name else public
    text = f"{host.text} was refused: its address {addresses[0][0]} is not public"
    ip = addresses[0][0]
    fix = f'if the agent may reach it, allow that address: egress = ["{host.text}:{port}={ip}"]'
    raise RefusedError(f"{text}; {fix}")
