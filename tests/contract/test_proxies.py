"""Proxies and private certificates: a company's network, as a client meets it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.api.client import Client
from app.api.errors import ApiError, NotSendableError, UnreachableError
from app.api.network import Network, as_proxy, is_exempt
from app.profiles.load import parse
from app.profiles.token import Token
from tests.contract.conftest import ORGANIZATION
from tests.contract.conftest import create as fails_to_create
from tests.lab import ORGANIZATION as CREATED
from tests.lab import Respond, Server
from tests.proxy import ADDRESS, Proxy
from tests.service.certificates import Certificate, make_certificate

SERVICE = "https://reviews.example.test/v1"
"""A name that only the proxy can reach."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"), "DNS:reviews.example.test,DNS:localhost,IP:127.0.0.1")


@pytest.fixture
async def service(certificate: Certificate) -> AsyncIterator[Server]:
    """A service whose certificate is from a private authority."""
    async with Server(tls=certificate.server_context()) as server:
        yield server


@asynccontextmanager
async def proxy_to(server: Server) -> AsyncIterator[Proxy]:
    """A proxy that leads to this server."""
    proxy = Proxy(server.port)
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listening.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listening.close()


def client_of(base_url: str = SERVICE, **network: object) -> Client:
    return Client(base_url, Token("t"), deadline_s=60.0, network=Network(**{"env": {}, **network}))  # type: ignore[arg-type]


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
async def test_the_environments_proxy_is_used_with_its_login(
    service: Server, certificate: Certificate, variable: str
) -> None:
    """For reads and for writes; the write's entry is committed once, after the proxy opened the tunnel."""
    service.script(Respond(200, {"runs": []}), Respond(201, CREATED))
    committed: list[int] = []
    async with proxy_to(service) as proxy:
        env = {variable: ADDRESS.format(port=proxy.port)}
        async with client_of(env=env, ca_file=certificate.file) as client:

            async def commit() -> None:
                committed.append(len(proxy.asked))

            await client.list_runs()
            await client.send(ORGANIZATION, before_first_byte=commit)

    assert proxy.asked == ["CONNECT reviews.example.test:443 HTTP/1.1"] * 2
    assert committed == [2]


async def test_names_are_left_to_a_socks_proxy(service: Server, certificate: Certificate) -> None:
    """This machine may not be able to look them up."""
    service.script(Respond(200, {"runs": []}))
    async with (
        proxy_to(service) as proxy,
        client_of(proxy=f"socks5h://127.0.0.1:{proxy.port}", ca_file=certificate.file) as client,
    ):
        await client.list_runs()

    assert proxy.asked == ["SOCKS reviews.example.test"]


async def test_a_proxy_that_refuses_is_named_without_its_login(service: Server, certificate: Certificate) -> None:
    """Nothing was sent to the service, the write's outcome is certain, and the message says who refused."""
    async with proxy_to(service) as proxy:
        way = f"http://user:wrong-secret@127.0.0.1:{proxy.port}"
        async with client_of(proxy=way, ca_file=certificate.file) as client:
            error = await fails_to_create(client)

    assert f"through the proxy 127.0.0.1:{proxy.port}: 407" in error.message
    assert "wrong-secret" not in error.message
    assert (service.requests, getattr(error, "surely_not_sent", None)) == ([], True)


async def test_an_unknown_authority_names_the_settings(service: Server, tmp_path: Path) -> None:
    """What to set, and which file a setting names in vain."""
    address, missing = f"https://localhost:{service.port}/v1", tmp_path / "missing.pem"
    async with proxy_to(service) as proxy, client_of(proxy=ADDRESS.format(port=proxy.port)) as client:
        with pytest.raises(UnreachableError, match=r"through the proxy 127\.0\.0\.1:.*ca_file or SSL_CERT_FILE"):
            await client.list_runs()
    for way, error, words in (
        ({}, UnreachableError, "ca_file or SSL_CERT_FILE"),
        ({"env": {"SSL_CERT_FILE": str(missing)}}, NotSendableError, r"SSL_CERT_FILE .*missing\.pem"),
        ({"ca_file": missing}, NotSendableError, r"ca_file .*missing\.pem"),
        ({"client_cert": missing}, NotSendableError, r"client_cert .*missing\.pem"),
    ):
        async with client_of(address, **way) as client:
            with pytest.raises(error, match=words):
                await client.list_runs()


async def test_no_proxy_and_none_go_straight_there(server: Server) -> None:
    """This machine's own addresses never go through a proxy, whatever the environment says."""
    server.otherwise = lambda _: Respond(200, {"runs": []})
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"}
    async with client_of(server.base_url, env=nowhere) as client:
        await client.list_runs()
    for way in ({"proxy": "none", "env": nowhere}, {"env": {**nowhere, "NO_PROXY": ".example.test"}}):
        assert Network(**way).proxy_of(SERVICE) is None  # type: ignore[arg-type]

    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "address", ["ftp://proxy.example", "http://", "http://user:secret@proxy.example:port", "socks4://x"]
)
async def test_an_address_that_is_none_is_refused(address: str) -> None:
    """Before anything is sent, and without its login."""
    async with client_of(proxy=address) as client:
        with pytest.raises(ApiError, match="not a proxy's address") as caught:
            await client.list_runs()

    assert "secret" not in caught.value.message
    assert as_proxy("proxy.example:3128").url.host == "proxy.example"


@pytest.mark.parametrize(
    ("entry", "exempt", "others"),
    [
        ("example.test", ["example.test", "api.example.test"], ["notexample.test"]),
        (".example.test", ["api.example.test", "example.test"], ["example.test.evil"]),
        ("*.example.test", ["api.example.test"], ["example.com"]),
        ("10.0.0.0/8", ["10.1.2.3"], ["11.0.0.1", "10.example.test"]),
        ("192.0.2.7", ["192.0.2.7"], ["192.0.2.70"]),
        ("[2001:db8::1]", ["2001:db8::1"], ["2001:db8::2"]),
        ("2001:db8::/32", ["2001:db8:1::5"], ["2001:db9::1"]),
        ("[2001:db8::1]:443", ["2001:db8::1"], []),
        ("example.test:443", ["example.test"], []),
        ("example.test:8443", [], ["example.test"]),
        ("*", ["anything.example"], []),
        ("", [], ["example.test"]),
    ],
)
def test_no_proxy_takes_names_addresses_and_networks(entry: str, exempt: list[str], others: list[str]) -> None:
    """Alone and among others, in either case of letters."""
    for written in (entry, entry.upper(), f"elsewhere.example, {entry}", f"elsewhere.example {entry}"):
        assert all(is_exempt(host, 443, written) for host in exempt)
        assert not any(is_exempt(host, 443, written) for host in others)


def test_a_profile_has_its_own_way(tmp_path: Path) -> None:
    """The three keys of a profile's table."""
    text = (
        '[profiles.p]\nbase_url = "https://x.example/v1"\nproxy = "none"\nca_file = "ca.pem"\nclient_cert = "/me.pem"'
    )
    (profile,) = parse(tmp_path / "config.toml", text).profiles

    assert (profile.proxy, profile.ca_file, profile.client_cert) == ("none", tmp_path / "ca.pem", Path("/me.pem"))
