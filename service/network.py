"""Hosts, addresses and connections, through a proxy if the environment names one.

A host is parsed once; only the parsed `Host` is matched, resolved and dialled. If it cannot be reached, an `OSError`
says why.
"""

import base64
import contextlib
import ipaddress
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Self
from urllib.parse import SplitResult, unquote, urlsplit

import h11

_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_NAME: Final = 253
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = ipaddress.ip_network("2000::/3")
"""The range of all public IPv6 addresses."""
_PORTS: Final = {"https": 443, "http": 80}
_SHORTEST_S: Final = 0.01
"""A timeout of zero would mean not to wait at all."""
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""Names of this machine, to which secrets may travel in clear."""
Address = tuple[str, int]
"""An IP address and a port."""
PROXY_VARIABLES: Final = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")
CLIENT_CERT_VARIABLE: Final = "RUNWARDEN_CLIENT_CERT"
"""The variable with the file of the certificate, and its key, that the service shows to servers that ask for one."""
_PROXY_FAULTS: Final = range(500, 600)
_EXEMPT: Final = re.compile(r"(?:\*?\.)?(?P<host>\[[^\]]*\]|[^:]+|[0-9a-f]*:[0-9a-f:.]*(?:/\d+)?)(?::(?P<port>\d+))?")


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
        if len(name) > _MAX_NAME or not _NAME.fullmatch(name) or _NUMBER.fullmatch(name.rpartition(".")[2]):
            raise HostError(f"{text[:_MAX_NAME]!r} is not a host name")
        return cls(name, None)


class ProxyError(OSError):
    """The proxy made no tunnel; the text says why, and never shows its login."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that tunnels (HTTP's CONNECT)."""

    host: Host
    port: int
    is_tls: bool
    login: str | None = field(repr=False)
    """The login as HTTP's Basic."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an address such as `http://user:password@proxy.example:3128`; without a scheme it is http.

        Raises:
            ProxyError: It is none.
        """
        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            if parts.scheme in _PORTS and parts.hostname:
                login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
                basic = base64.b64encode(login.encode()).decode() if "@" in parts.netloc else None
                return cls(Host.parse(parts.hostname), port_of(parts), parts.scheme == "https", basic)
        except ValueError:
            pass
        example = "HTTPS_PROXY takes one such as http://proxy.example:3128"
        raise ProxyError(f"{text.rpartition('@')[2]!r} is not the address of an http or https proxy: {example}")

    def tunnel(self, authority: str, until: float) -> socket.socket:
        """Return a connection through the proxy to `host:port`."""
        link = dial(resolve(self.host, self.port), until)
        try:
            link.settimeout(max(_SHORTEST_S, until - time.monotonic()))
            if self.is_tls:
                link = ssl.create_default_context().wrap_socket(link, server_hostname=self.host.text)
            exchange = h11.Connection(h11.CLIENT)
            login = [("Proxy-Authorization", f"Basic {self.login}")] if self.login is not None else []
            request = h11.Request(method="CONNECT", target=authority, headers=[("Host", authority), *login])
            link.sendall(exchange.send(request) or b"")
            # Byte by byte: what follows the answer is the other end's.
            with cut_off(until - time.monotonic(), lambda: link):
                while (answer := exchange.next_event()) is h11.NEED_DATA:
                    exchange.receive_data(link.recv(1))
            self._check(answer, authority)
        except h11.RemoteProtocolError as error:
            link.close()
            raise ProxyError(f"the proxy {self.host.text}:{self.port} did not answer as one: {error}") from error
        except BaseException:
            link.close()
            raise
        return link

    def _check(self, answer: object, authority: str) -> None:
        name = f"the proxy {self.host.text}:{self.port}"
        if not isinstance(answer, h11.Response):
            raise ProxyError(f"{name} closed the connection")
        if answer.status_code // 100 == HTTPStatus.OK // 100:
            return
        if answer.status_code != HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            fix = "let it allow that host"
            if answer.status_code in _PROXY_FAULTS:
                fix = "it could not reach that host"
            raise ProxyError(f"{name} answered {answer.status_code} to CONNECT {authority}: {fix}")
        schemes = {value.split(b" ")[0].lower() for key, value in answer.headers if key == b"proxy-authenticate"}
        if schemes and b"basic" not in schemes:
            offered = ", ".join(sorted(name.decode("ascii", "replace") for name in schemes))
            text = f"wants a login by {offered}, and only Basic is known: name a local proxy that adds it, such as px"
        elif self.login is not None:
            text = "refused the login in HTTPS_PROXY"
        else:
            text = f"wants a login: HTTPS_PROXY takes one as http://USER:PASSWORD@{self.host.text}:{self.port}"
        raise ProxyError(f"{name} {text}")


def proxy_of(scheme: str, host: Host, port: int) -> Proxy | None:
    """Return the environment's proxy for a host; None: the connection is direct, as always to this machine.

    Raises:
        ProxyError: The variable holds no address of a proxy.
    """
    if host.text == "localhost" or (host.ip is not None and host.ip.is_loopback):
        return None
    names = (f"{scheme}_proxy", "all_proxy")
    address = next((text for name in names if (text := _variable(name))), None)
    if address is None or _is_exempt(host, port):
        return None
    return Proxy.parse(address)


def _variable(name: str) -> str:
    return (os.environ.get(name) or os.environ.get(name.upper()) or "").strip()


def _is_exempt(host: Host, port: int) -> bool:
    """Whether NO_PROXY has a host: names with their subdomains, addresses, networks (CIDR), `host:port`, or `*`."""
    for entry in re.split(r"[,\s]+", _variable("no_proxy").lower()):
        match = _EXEMPT.fullmatch(entry)
        if entry == "*":
            return True
        if match is None or match["port"] not in {None, str(port)}:
            continue
        name = match["host"].strip("[]")
        if host.ip is None and (host.text == name or host.text.endswith(f".{name}")):
            return True
        with contextlib.suppress(ValueError):
            if host.ip is not None and host.ip in ipaddress.ip_network(name, strict=False):
                return True
    return False


def resolve(host: Host, port: int) -> list[Address]:
    if host.ip is not None:
        return [(host.text, port)]
    return [(str(row[4][0]), port) for row in socket.getaddrinfo(host.text, port, type=socket.SOCK_STREAM)]


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
    """Connect to the first address that answers before an instant (monotonic seconds)."""
    for left, address in zip(range(len(addresses), 1, -1), addresses, strict=False):
        with contextlib.suppress(OSError):
            # An address that does not answer must leave the others a share of the time.
            return socket.create_connection(address, max(_SHORTEST_S, (until - time.monotonic()) / left))
    return socket.create_connection(addresses[-1], max(_SHORTEST_S, until - time.monotonic()))


def connect(parts: SplitResult, until: float, addresses: Sequence[Address] | None = None) -> socket.socket:
    """Connect to the host of an http or https URL before an instant (monotonic seconds), through its proxy if any.

    If `addresses` are given, only these are dialled. The socket keeps a timeout.

    Raises:
        HostError: The URL has no valid host.
        OSError: The host cannot be reached, or its certificate is not valid.
    """
    host, port = Host.parse(parts.hostname or ""), port_of(parts)
    context = ssl.create_default_context() if parts.scheme == "https" else None
    if context is not None and (file := os.environ.get(CLIENT_CERT_VARIABLE)):
        try:
            context.load_cert_chain(file)
        except OSError as error:
            raise OSError(f"{CLIENT_CERT_VARIABLE}: {file} holds no certificate with its key ({error})") from error
    if (proxy := proxy_of(parts.scheme, host, port)) is not None:
        link = proxy.tunnel(authority_of(*(addresses or [(host.text, port)])[0]), until)
    else:
        link = dial(resolve(host, port) if addresses is None else addresses, until)
    # Applies to each step of the handshake and to the exchange after it.
    link.settimeout(max(_SHORTEST_S, until - time.monotonic()))
    if context is None:
        return link
    return context.wrap_socket(link, server_hostname=host.text)


def authority_of(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def port_of(parts: SplitResult) -> int:
    return parts.port or _PORTS[parts.scheme]


@contextlib.contextmanager
def cut_off(after_s: float, socket_of: Callable[[], socket.socket | None]) -> Iterator[None]:
    """Shut a socket down if the block takes longer, so that a pending read or write fails or returns.

    The socket's own timeout starts again with each byte, and so never stops a peer that sends byte by byte.
    """

    def shut_down() -> None:
        with contextlib.suppress(OSError):
            if (link := socket_of()) is not None:
                # Not the TLS wrapper's own method: after it, the connection would continue in clear text.
                socket.socket.shutdown(link, socket.SHUT_RDWR)

    timer = threading.Timer(after_s, shut_down)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
