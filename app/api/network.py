"""How requests leave this machine: the proxy, and the certificates that are trusted and presented.

The heartbeat is one without a token. A proxy or file that cannot be used raises `ValueError`; no message shows a login.
"""

import asyncio
import atexit
import os
import re
import ssl
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, Self
from urllib.parse import quote, urlsplit

import httpx
from msgspec import Struct, field

from app.profiles import Profile
from app.profiles.values import is_loopback

FROM_ENVIRONMENT: Final = "environment"
NONE: Final = "none"
_SCHEMES: Final = ("http", "https", "socks5", "socks5h")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy")
_LOOPBACK: Final = "localhost,127.0.0.1,::1"
REFUSED: Final = "CERTIFICATE_VERIFY_FAILED"
"""Part of the error message about an untrusted certificate."""
TRUST: Final = "If the certificate is from your own authority, name that in ca_file or SSL_CERT_FILE."
DEADLINE_S: Final = 10.0
if find_spec("sniffio") is None:
    # httpcore tries to import it several times a request. This entry makes that fail without a search of all folders.
    sys.modules["sniffio"] = None  # type: ignore[assignment]


class Network(Struct, frozen=True):
    """One profile's connection to its service: proxy and certificates."""

    proxy: str = FROM_ENVIRONMENT
    """`environment` (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY), `none`, or a proxy's address."""
    ca_file: Path | None = None
    """Certificate authorities to trust besides the system's, as PEM."""
    client_cert: Path | None = None
    """A client certificate with its key, as PEM."""
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @classmethod
    def of(cls, profile: Profile) -> Self:
        return cls(profile.proxy, profile.ca_file, profile.client_cert)

    def proxy_of(self, url: str) -> httpx.Proxy | None:
        """The proxy for a request, or None to connect directly, as always to this machine's own addresses."""
        address = self.address_of(url)
        return as_proxy(address) if address else None

    def address_of(self, url: str) -> str:
        """The configured address of the proxy; empty without one."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        if self.proxy == NONE or is_loopback(host):
            return ""
        address = self.proxy
        if address == FROM_ENVIRONMENT:
            port = parts.port or _DEFAULT_PORTS[parts.scheme]
            names = (f"{parts.scheme}_proxy", "all_proxy")
            address = next(filter(None, (self._variable(name) for name in names)), "")
            if not address or is_exempt(host, port, self._variable("no_proxy")):
                return ""
        return address

    def through(self, url: str) -> str:
        """The words for a connection error that name the proxy without its login; empty without a proxy."""
        with suppress(ValueError):
            if proxy := self.proxy_of(url):
                return f" through the proxy {proxy.url.host}:{proxy.url.port or ''}".rstrip(":")
        return ""

    def environment(self) -> dict[str, str]:
        """The environment that makes git and `requests` connect the same way; writes a file."""
        ours = {*_PROXIES, "no_proxy"}
        env = {name: value for name, value in self.env.items() if name.lower() not in ours}
        proxies = {name: self._variable(name) for name in _PROXIES}
        direct = self._variable("no_proxy").replace("*.", ".")  # curl does not know `*.`.
        if self.proxy == NONE:
            proxies, direct = {}, "*"
        elif self.proxy != FROM_ENVIRONMENT:
            proxies = dict.fromkeys(_PROXIES, _encode_login(self.proxy))
            direct = ""
        for name, address in proxies.items():
            with suppress(ValueError):  # git may accept schemes that we refuse, such as socks4.
                proxies[name] = _encode_login(address)
        if direct != "*":
            direct = f"{direct},{_LOOPBACK}".strip(",")
        for name, value in {**proxies, "no_proxy": direct}.items():
            env |= {name: value, name.upper(): value} if value else {}
        file = self.env.get("SSL_CERT_FILE")
        if self.ca_file is not None or file:
            if not Path(_trusted_pems(self.ca_file, file)).exists():
                _trusted_pems.cache_clear()  # Something cleaned up the temporary files.
            bundle = dict.fromkeys(("GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE"), _trusted_pems(self.ca_file, file))
            env = env | bundle if self.ca_file is not None else bundle | env
        if self.client_cert is not None:
            env |= dict.fromkeys(("GIT_SSL_CERT", "GIT_SSL_KEY"), str(self.client_cert))
        return env

    async def connections(self, url: str, limits: httpx.Limits) -> httpx.AsyncHTTPTransport:
        """New connections to the server of this address, none of them open yet."""
        proxy = self.proxy_of(url)
        has_tls_proxy = proxy is not None and proxy.url.scheme == "https"
        # On http a context is not used; loading httpx's certificates would take a tenth of a second.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if urlsplit(url).scheme == "https" or has_tls_proxy:
            context = await asyncio.to_thread(self.context)
        if proxy is not None and has_tls_proxy:
            proxy = httpx.Proxy(proxy.url, auth=proxy.auth, ssl_context=context)
        return httpx.AsyncHTTPTransport(verify=context, trust_env=False, limits=limits, proxy=proxy)

    def context(self) -> ssl.SSLContext:
        """The certificates that a TLS connection trusts and presents; reads files."""
        file = self.env.get("SSL_CERT_FILE")
        if file and not os.access(file, os.R_OK):
            raise ValueError(f"SSL_CERT_FILE names {file}, which cannot be read")
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


@cache
def _trusted_pems(ca_file: Path | None, _given: str | None) -> str:
    """All trusted certificates as PEM: git and requests accept one file in place of the system's."""
    context = Network(ca_file=ca_file).context()
    pems = [ssl.DER_cert_to_PEM_cert(each) for each in context.get_ca_certs(binary_form=True)]
    # OpenSSL reads this folder only when it needs to.
    folder = ssl.get_default_verify_paths().capath
    pems += [each.read_text("latin-1") for each in Path(folder).glob("*.0")] if folder else []
    file = NamedTemporaryFile("w", prefix="runwarden-", suffix=".pem", encoding="latin-1")  # noqa: SIM115 # stays open until the process exits
    atexit.register(file.close)
    file.write("\n".join(pems))
    file.flush()
    return file.name


def _encode_login(address: str) -> str:
    """A proxy's address, with its login encoded so that every program reads it the same way."""
    proxy = as_proxy(address)
    login = ":".join(quote(part, safe="") for part in proxy.auth or ())
    if login:
        return str(proxy.url).replace("://", f"://{login}@", 1)
    return str(proxy.url)


def as_proxy(address: str) -> httpx.Proxy:
    """A proxy's address, such as `http://user:password@proxy.example:3128`; without a scheme it is http."""
    text = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in _SCHEMES and parts.hostname and (parts.port is None or parts.port > 0)
        if is_usable:
            return httpx.Proxy(text)
    except ValueError:
        pass
    without_login = text.rpartition("@")[2]
    raise ValueError(
        f"{without_login!r} is not a proxy's address: write one such as http://proxy.example:3128"
    ) from None


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
        match = re.fullmatch(r"\[(?P<v6>[^\]]*)\](?::(?P<v6_port>\d+))?|(?P<name>[^:]*):(?P<port>\d+)", entry)
        name, its_port = entry, None
        if match is not None:
            port_text = match["v6_port"] or match["port"]
            name = match["v6"] or match["name"] or ""
            its_port = int(port_text) if port_text else None
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


async def send_heartbeat(address: str, network: Network) -> str | None:
    """Request the address once. Return the failure, without the address, which may be a secret; or None."""
    try:
        parts = urlsplit(address)
        is_usable = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        if not is_usable or not parts.hostname:
            return "The heartbeat's address must begin with https:// (http only on loopback)."
    except ValueError:
        return "The heartbeat's address cannot be read as one."
    try:
        connections = await network.connections(address, httpx.Limits())
    except ValueError as error:
        return f"The heartbeat cannot be sent: {error}."
    try:
        # A redirect leads to another address than the configured one: it counts as a failure.
        async with httpx.AsyncClient(
            transport=connections, trust_env=False, timeout=DEADLINE_S, follow_redirects=False
        ) as client:
            answer = await client.get(address)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as error:
        fix = f" Its certificate is refused. {TRUST}" if REFUSED in str(error) else ""
        return f"The heartbeat was not taken{network.through(address)}: {type(error).__name__}.{fix}"
    if answer.is_success:
        return None
    return f"The heartbeat was answered with {answer.status_code}."
