"""How requests leave this machine: through which proxy, and which certificates are trusted and shown."""

import os
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
from msgspec import Struct, field

from app.profiles.values import is_loopback

FROM_ENVIRONMENT: Final = "environment"
NONE: Final = "none"
_SCHEMES: Final = ("http", "https", "socks5", "socks5h")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Network(Struct, frozen=True):
    """One profile's way to its service."""

    proxy: str = FROM_ENVIRONMENT
    """`environment` (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY), `none`, or a proxy's address."""
    ca_file: Path | None = None
    """Certificate authorities to trust besides the system's, as PEM."""
    client_cert: Path | None = None
    """A client certificate with its key, as PEM."""
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def proxy_of(self, url: str) -> httpx.Proxy | None:
        """The proxy for a request; None: the request goes straight there.

        This machine's own addresses never go through a proxy.

        Raises:
            ValueError: The proxy's address cannot be used; the message does not show its login.
        """
        parts = urlsplit(url)
        host = parts.hostname or ""
        if self.proxy == NONE or is_loopback(host):
            return None
        address = self.proxy
        if address == FROM_ENVIRONMENT:
            port = parts.port or _DEFAULT_PORTS[parts.scheme]
            names = (f"{parts.scheme}_proxy", "all_proxy")
            address = next(filter(None, (self._variable(name) for name in names)), "")
            if not address or is_exempt(host, port, self._variable("no_proxy")):
                return None
        return as_proxy(address)

    def context(self) -> ssl.SSLContext:
        """The certificates that a TLS connection trusts and presents; reads files.

        Raises:
            ValueError: A file cannot be used; the message names it.
        """
        given = self.env.get("SSL_CERT_FILE")
        if given and not os.access(given, os.R_OK):
            raise ValueError(f"SSL_CERT_FILE names {given}, which cannot be read")
        context = httpx.create_ssl_context(trust_env=False)
        # An operator's own certificate authority is among the system's, or in SSL_CERT_FILE.
        context.load_default_certs()
        try:
            if self.ca_file is not None:
                context.load_verify_locations(self.ca_file)
        except OSError as error:
            raise ValueError(f"ca_file {self.ca_file} holds no certificates that can be read ({error})") from error
        try:
            if self.client_cert is not None:
                context.load_cert_chain(self.client_cert)
        except OSError as error:
            raise ValueError(f"client_cert {self.client_cert} holds no certificate with its key ({error})") from error
        return context

    def _variable(self, name: str) -> str:
        return (self.env.get(name) or self.env.get(name.upper()) or "").strip()


def as_proxy(address: str) -> httpx.Proxy:
    """A proxy's address, such as `http://user:password@proxy.example:3128`; without a scheme it is http.

    Raises:
        ValueError: It is not one; the message does not show its login.
    """
    text = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in _SCHEMES and parts.hostname and (parts.port is None or parts.port > 0)
        if is_usable:
            return httpx.Proxy(text)
    except ValueError:
        pass
    shown = text.rpartition("@")[2]
    raise ValueError(f"{shown!r} is not a proxy's address: write one such as http://proxy.example:3128") from None


def is_exempt(host: str, port: int, no_proxy: str) -> bool:
    """Whether NO_PROXY has the host: names with their subdomains, addresses, networks (CIDR), `host:port`, or `*`."""
    host = host.lower().rstrip(".")
    try:
        address = ip_address(host)
    except ValueError:
        address = None
    for entry in re.split(r"[,\s]+", no_proxy.lower()):
        if entry == "*":
            return True
        # An IPv6 address may be in brackets.
        found = re.fullmatch(r"\[(?P<v6>[^\]]*)\](?::(?P<v6_port>\d+))?|(?P<name>[^:]*):(?P<port>\d+)", entry)
        name, its_port = entry, None
        if found is not None:
            named = found["v6_port"] or found["port"]
            name, its_port = found["v6"] or found["name"] or "", int(named) if named else None
        if not name or its_port not in {None, port}:
            continue
        if address is None:
            name = name.removeprefix("*").strip(".")
            if name and (host == name or host.endswith(f".{name}")):
                return True
            continue
        with suppress(ValueError):
            if address in ip_network(name, strict=False):
                return True
    return False
