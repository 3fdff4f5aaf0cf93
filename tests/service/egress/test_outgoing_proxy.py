"""In a network whose only way out is a proxy with a login, git, code hosts' APIs and agents use it."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from service.egress.proxies import EgressProxy
from service.git import GitCommandError, GitRunner
from service.outgoing.webhooks import EndpointError, addresses_of
from tests import proxy as proxies
from tests.lab import Received, Respond, Step
from tests.service.conftest import UNBOXED, Api, member, placed
from tests.service.git_hosts import GitHttpHost
from tests.service.servers import Certificate, make_certificate
from tests.service_process import git, make_repository

NAME = "git.example.test"
"""A name that only the proxy can reach."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"), f"DNS:{NAME},DNS:mail.example.test")


@pytest.fixture(autouse=True)
def _no_authority_for_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear git's own setting, since the service passes the authority of SSL_CERT_FILE."""
    monkeypatch.delenv("GIT_SSL_CAINFO", raising=False)


@pytest.fixture
def host(certificate: Certificate, tmp_path: Path) -> Iterator[GitHttpHost]:
    """A code host with a private certificate, whose API answers."""
    make_repository(tmp_path / "hosted" / "acme" / "api", {"README.md": "# api\n"})

    def api(request: Received) -> Step | None:
        return Respond(200, {"resources": {"core": {"remaining": 9}}}) if request.path.startswith("/api/") else None

    with closing(GitHttpHost(tmp_path / "hosted", "sesame", tls=certificate.server_context())) as there:
        there.fault = api
        yield there


@pytest.fixture
def proxy(host: GitHttpHost) -> Iterator[proxies.Proxy]:
    with proxies.Proxy(leads_to=host.port) as there:
        yield there


def test_a_run_uses_the_proxy_for_its_code_host(
    start: Callable[..., Api], host: GitHttpHost, proxy: proxies.Proxy, certificate: Certificate, tmp_path: Path
) -> None:
    """Git fetches and pushes with the host's token, health asks its API, and the proxy's password is not logged."""
    connected = {"platform": "github", "api_url": f"https://{NAME}/api/v3", "host": NAME, "token_env": "HOST_TOKEN"}
    connected["clone_url"] = f"https://{NAME}/{{path}}.git"
    shell = "cat > /dev/null; echo done > new.txt; env | grep -i proxy; true"
    setup = {"organizations": [member(hosts=[connected], repositories=[placed()])]}
    setup["agents"] = [{"name": "worker", "argv": ["sh", "-c", shell]}]
    environment = {"HTTPS_PROXY": proxies.ADDRESS.format(port=proxy.port), "SSL_CERT_FILE": str(certificate.file)}
    api = start(settings=UNBOXED, setup=setup, environment=environment | {"HOST_TOKEN": "sesame"})

    turn = api.work("go")

    assert turn["outcome"] == "completed", turn["log"]
    assert "new.txt" in git("ls-tree", "--name-only", turn["branch"], cwd=tmp_path / "hosted/acme/api.git")
    assert "p%40w" not in turn["log"]
    health = api.get("/external/installation/health").json()
    assert health == {"code_hosting": {"github": {"status": "ok"}}}
    assert {*proxy.asked} == {f"CONNECT {NAME}:443 HTTP/1.1"}


def test_a_refusing_proxy_is_waited_for(monkeypatch: pytest.MonkeyPatch, proxy: proxies.Proxy, tmp_path: Path) -> None:
    """The host and turn are not to blame; the message names the login, for https and plain http."""
    wrong = f"http://user:wrong@127.0.0.1:{proxy.port}"
    for name, url in (("https_proxy", f"https://{NAME}/a.git"), ("http_proxy", "http://git.example.test/a.git")):
        monkeypatch.setenv(name, wrong)
        refusal = r"the proxy refused the connection \(407\): check the login"
        with pytest.raises(GitCommandError, match=refusal) as error:
            GitRunner(tmp_path, 30)("ls-remote", "--", url)
        assert error.value.is_passing
        assert "wrong" not in str(error.value)


def test_an_agents_connections_use_the_proxy(
    monkeypatch: pytest.MonkeyPatch, proxy: proxies.Proxy, certificate: Certificate, tmp_path: Path
) -> None:
    """The proxy gets the name, which this machine cannot resolve; its refusals are in the turn's log."""
    monkeypatch.setenv("HTTPS_PROXY", proxies.ADDRESS.format(port=proxy.port))
    said: list[str] = []

    def ask() -> bytes:
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(30)
        link.connect(str(tmp_path / "egress"))
        link.sendall(f"CONNECT {NAME}:443 HTTP/1.1\r\nHost: {NAME}:443\r\n\r\n".encode())
        assert link.recv(1000).startswith(b"HTTP/1.1 200")
        context = ssl.create_default_context(cafile=str(certificate.file))
        with context.wrap_socket(link, server_hostname=NAME) as secure:
            secure.sendall(f"GET /api/ HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n".encode())
            return secure.recv(12)

    with EgressProxy(tmp_path / "egress", [NAME], lambda _, text: said.append(text)):
        assert ask() == b"HTTP/1.1 200"
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        with suppress(OSError):
            ask()
    assert said[0].startswith(f"egress: {NAME} cannot be reached: the proxy 127.0.0.1:{proxy.port} wants a login: ")


def test_the_proxy_resolves_an_endpoints_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a proxy, the name has no address."""
    with pytest.raises(EndpointError, match="no public address"):
        addresses_of(f"https://{NAME}/hook", [])
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.corp:3128")

    assert addresses_of(f"https://{NAME}/hook", []) == [(NAME, 443)]
