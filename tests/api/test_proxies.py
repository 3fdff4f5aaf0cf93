"""Proxies and private certificates, as in a company's network."""

from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.api.client import Client
from app.api.errors import ApiError, NotSendableError, UnreachableError
from app.api.network import Network, as_proxy, is_exempt, send_heartbeat
from app.notify.channels import relay
from app.profiles import NotifyRoute
from app.profiles.token import Token
from app.results.git import Git, GitError
from tests.api.conftest import ORGANIZATION
from tests.api.conftest import create as fails_to_create
from tests.lab import ORGANIZATION as CREATED
from tests.lab import Respond, Server
from tests.proxy import ADDRESS, Proxy
from tests.service.servers import Certificate, make_certificate

SERVICE = "https://reviews.example.test/v1"
"""A name that only the proxy can resolve."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"), "DNS:reviews.example.test,DNS:localhost,IP:127.0.0.1")


@pytest.fixture
def service(certificate: Certificate) -> Iterator[Server]:
    with Server(tls=certificate.server_context()) as server:
        yield server


def client_of(base_url: str = SERVICE, **network: object) -> aclosing[Client]:
    way = Network(**{"env": {}, **network})  # type: ignore[arg-type]
    return aclosing(Client(base_url, Token("t"), deadline_s=60.0, network=way))


async def test_the_environments_proxy_and_its_login_are_used(service: Server, certificate: Certificate) -> None:
    """Reads and writes use the proxy; a write's entry is committed once, after the proxy opened the tunnel."""
    service.script(Respond(200, {"runs": []}), Respond(201, CREATED))
    committed: list[int] = []
    with Proxy(leads_to=service.port) as proxy:
        env = {"HTTPS_PROXY": ADDRESS.format(port=proxy.port)}
        async with client_of(env=env, ca_file=certificate.file) as client:

            async def commit() -> None:
                committed.append(len(proxy.asked))

            await client.list_runs()
            await client.send(ORGANIZATION, before_first_byte=commit)

    assert proxy.asked == ["CONNECT reviews.example.test:443 HTTP/1.1"] * 2
    assert committed == [2]


async def test_a_socks_proxy_resolves_names(service: Server, certificate: Certificate) -> None:
    """This machine may not be able to resolve the names."""
    service.script(Respond(200, {"runs": []}))
    with Proxy(leads_to=service.port) as proxy:
        way = f"socks5h://127.0.0.1:{proxy.port}"
        async with client_of(proxy=way, ca_file=certificate.file) as client:
            await client.list_runs()

    assert proxy.asked == ["SOCKS reviews.example.test"]


async def test_a_proxy_that_refuses_is_named_without_its_login(service: Server, certificate: Certificate) -> None:
    """Nothing was sent to the service, the write's outcome is certain, and the message names the proxy."""
    with Proxy(leads_to=service.port) as proxy:
        way = f"http://user:wrong-secret@127.0.0.1:{proxy.port}"
        async with client_of(proxy=way, ca_file=certificate.file) as client:
            error = await fails_to_create(client)

    assert f"through the proxy 127.0.0.1:{proxy.port}: 407" in error.message
    assert "wrong-secret" not in error.message
    assert (service.requests, getattr(error, "surely_not_sent", None)) == ([], True)


async def test_an_unknown_authority_names_the_settings(service: Server, tmp_path: Path) -> None:
    address, missing = f"https://localhost:{service.port}/v1", tmp_path / "missing.pem"
    with Proxy(leads_to=service.port) as proxy:
        async with client_of(proxy=ADDRESS.format(port=proxy.port)) as client:
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


async def test_no_proxy_and_loopback_connect_directly(server: Server) -> None:
    """Loopback addresses never use a proxy, whatever the environment says."""
    server.otherwise = lambda _: Respond(200, {"runs": []})
    nowhere = {"HTTPS_PROXY": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"}
    async with client_of(server.base_url, env=nowhere) as client:
        await client.list_runs()
    for way in ({"proxy": "none", "env": nowhere}, {"env": {**nowhere, "NO_PROXY": ".example.test"}}):
        assert Network(**way).proxy_of(SERVICE) is None  # type: ignore[arg-type]
    for variable in ("https_proxy", "ALL_PROXY"):
        assert Network(env={variable: "http://127.0.0.1:1"}).proxy_of(SERVICE) is not None

    assert len(server.requests) == 1


async def test_an_invalid_proxy_address_is_refused() -> None:
    for address in ("ftp://proxy.example", "http://", "http://user:secret@proxy.example:port", "socks4://x"):
        async with client_of(proxy=address) as client:
            with pytest.raises(ApiError, match="not a proxy's address") as caught:
                await client.list_runs()
        assert "secret" not in caught.value.message
    assert as_proxy("proxy.example:3128").url.host == "proxy.example"


def test_no_proxy_takes_names_addresses_and_networks() -> None:
    for entry, exempt, others in (
        ("example.test", ["example.test", "api.example.test"], ["notexample.test"]),
        ("*.example.test", ["api.example.test"], ["example.com"]),
        ("10.0.0.0/8", ["10.1.2.3"], ["11.0.0.1", "10.example.test"]),
        ("[2001:db8::1]:443", ["2001:db8::1"], ["2001:db8::2"]),
        ("example.test:8443", [], ["example.test"]),
        ("", [], ["example.test"]),
    ):
        for written in (entry, f"elsewhere.example, {entry.upper()}"):
            assert all(is_exempt(host, 443, written) for host in exempt)
            assert not any(is_exempt(host, 443, written) for host in others)


async def reached(network: Network, folder: Path) -> list[str]:
    with pytest.raises(GitError) as of_git:
        await Git(network=network).fetch(folder, "ls-remote", SERVICE.replace("/v1", "/git"))
    network = replace(network, env={**network.env, "URLS": SERVICE.replace("https", "jsons")})
    of_route = await relay(NotifyRoute("r", urls_env="URLS"), "title", "body", "error", network)
    heartbeat = await send_heartbeat(SERVICE.replace("https", "HTTPS"), network)
    return [str(of_git.value), of_route or "", heartbeat or ""]


async def test_git_routes_and_the_heartbeat_use_the_profiles_proxy(
    service: Server, certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All three use the profile's proxy, whose login may contain an @, whatever the environment says."""
    service.otherwise = lambda request: Respond(404 if "git" in request.path else 200, b"{}")
    monkeypatch.delenv("GIT_SSL_CAINFO", raising=False)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    with Proxy(leads_to=service.port) as proxy:
        address = f"http://user:p@w@127.0.0.1:{proxy.port}"
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
        monkeypatch.setenv("NO_PROXY", "*")
        of_git, *others = await reached(Network(address, certificate.file), tmp_path)

    assert "not found" in of_git
    assert others == ["", ""]
    assert [request.path for request in service.requests] == ["/git/info/refs", "/v1", "/v1"]
    assert {each.rpartition(" ")[0] for each in proxy.asked} == {"CONNECT reviews.example.test:443"}


async def test_a_proxy_over_tls_is_trusted_for_requests_and_for_the_heartbeat(
    service: Server, certificate: Certificate
) -> None:
    """The authorities of ca_file verify the proxy, like the service behind it."""
    service.otherwise = lambda _: Respond(200, {"runs": []})
    with Proxy(leads_to=service.port, tls=certificate.server_context()) as proxy:
        way = f"https://user:p%40w@127.0.0.1:{proxy.port}"
        async with client_of(proxy=way, ca_file=certificate.file) as client:
            await client.list_runs()
        refused = await send_heartbeat(SERVICE, Network(way, certificate.file, env={}))

    assert refused is None
    assert proxy.asked == ["CONNECT reviews.example.test:443 HTTP/1.1"] * 2


async def test_git_routes_and_the_heartbeat_name_the_refusing_proxy(service: Server, tmp_path: Path) -> None:
    """The error names the proxy without its login."""
    with Proxy(leads_to=service.port) as proxy:
        unasked = await reached(Network(f"http://user:wr@ng@127.0.0.1:{proxy.port}"), tmp_path)

    assert [f"through the proxy 127.0.0.1:{proxy.port}" in each for each in unasked[1:]] == [True] * 2, unasked
    assert "ng@" not in str(unasked)
    assert service.requests == []


async def test_no_part_of_a_login_appears_in_gits_output(tmp_path: Path) -> None:
    """If a password contains an @, git and curl print its rest as a part of the host, which must be masked."""
    with pytest.raises(GitError, match="localhost") as caught:
        await Git(network=Network("none")).fetch(tmp_path, "ls-remote", "https://me:first@second@localhost:1/r")

    assert "second" not in str(caught.value)


def test_child_processes_get_the_profiles_proxy_as_variables() -> None:
    """The variables replace the environment's own, in upper and lower case; loopback uses no proxy."""
    env = {"https_proxy": "http://old:1", "ALL_PROXY": "socks4://old:2", "NO_PROXY": "*.a.test", "KEPT": "x"}
    loopback = "localhost,127.0.0.1,::1"

    assert Network("none", env=env).environment() == {"KEPT": "x", "no_proxy": "*", "NO_PROXY": "*"}
    own = Network("proxy.test:3128", client_cert=Path("/me.pem"), env=env).environment()
    assert {own[name] for name in ("http_proxy", "HTTPS_PROXY", "all_proxy")} == {"http://proxy.test:3128"}
    assert (own["no_proxy"], own["GIT_SSL_CERT"], own["GIT_SSL_KEY"]) == (loopback, "/me.pem", "/me.pem")
    given = Network(env=env).environment()
    assert (given["HTTPS_PROXY"], given["all_proxy"]) == ("http://old:1", "socks4://old:2")
    assert given["no_proxy"] == f".a.test,{loopback}"
