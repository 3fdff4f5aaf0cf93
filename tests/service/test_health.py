"""GET /external/installation/health (spec 2.7, 4.5) against real listeners and real repositories."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from service.hosts.health import HealthProbes
from service.settings import Probing
from service.store.hosts import Host


class CodeHost:
    """A code host's HTTP API on loopback that answers with a status of the test's choice."""

    def __init__(self) -> None:
        self.status = 200
        self.seen: list[tuple[str, str | None]] = []
        self.held = threading.Event()
        self.held.set()
        host = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                host.seen.append((self.path, self.headers["Authorization"]))
                host.held.wait(30)
                self.send_response(host.status)
                self.send_header("Location", "http://127.0.0.1:9/")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.held.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def code_host() -> Iterator[CodeHost]:
    host = CodeHost()
    yield host
    host.close()


@pytest.fixture
def probes() -> Iterator[HealthProbes]:
    made = HealthProbes(Probing(timeout_s=1, slow_s=0.9, cache_s=0))
    yield made
    made.close()


def github(api_url: str, token_env: str | None = None) -> Host:
    return Host("github", "github.example", None, "api", api_url, None, token_env)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, "ok"),
        (401, "unauthorized"),
        (403, "unauthorized"),
        (429, "degraded"),
        (503, "degraded"),
        (302, "degraded"),
    ],
)
def test_the_answer_of_the_api_decides(code_host: CodeHost, probes: HealthProbes, status: int, expected: str) -> None:
    """2xx is ok, 401 and 403 unauthorized, anything else degraded; redirects are not followed."""
    code_host.status = status

    assert probes.ask([github(code_host.url)], []) == {"github": expected}
    assert code_host.seen == [("/rate_limit", None)]


def test_the_token_comes_from_the_environment(
    code_host: CodeHost, probes: HealthProbes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host with token_env is asked with that token."""
    monkeypatch.setenv("A_HOSTS_TOKEN", "secret")
    probes.ask([github(code_host.url, "A_HOSTS_TOKEN")], [])

    assert code_host.seen == [("/rate_limit", "Bearer secret")]


def test_a_host_that_hangs_or_is_gone_is_unreachable(code_host: CodeHost, probes: HealthProbes) -> None:
    """No answer in time, or nobody there: unreachable, and the caller is not kept."""
    code_host.held.clear()
    hanging = probes.ask([github(code_host.url)], [])
    gone = probes.ask([github("http://127.0.0.1:1")], [])

    assert (hanging, gone) == ({"github": "unreachable"}, {"github": "unreachable"})


def test_callers_at_once_share_one_question(code_host: CodeHost, eventually: Callable[..., None]) -> None:
    """Ten callers while the host thinks: one request; and for the cache's seconds after it, none."""
    probes = HealthProbes(Probing(timeout_s=20, cache_s=60))
    code_host.held.clear()
    answers: list[dict[str, str]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(probes.ask([github(code_host.url)], []))) for _ in range(10)
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: len(code_host.seen) == 1, "the host is asked")
    code_host.held.set()
    for thread in threads:
        thread.join()
    probes.ask([github(code_host.url)], [])
    probes.close()

    assert answers == [{"github": "ok"}] * 10
    assert len(code_host.seen) == 1


def test_a_git_host_is_asked_through_one_of_its_repositories(start: Callable[..., Any]) -> None:
    """`git ls-remote` finds the repository: ok; the repository is moved away: unreachable."""
    api = start(settings="[probing]\ncache_s = 0\n")
    before = api.get("/external/installation/health").json()
    repository = api.service.repositories["acme/api"]
    repository.rename(repository.with_name("moved.git"))
    after = api.get("/external/installation/health").json()

    assert before == {
        "code_hosting": {
            "github": {"status": "ok"},
            "gitlab": {"status": "ok", "host": "gitlab.example", "group": "acme"},
        }
    }
    assert after["code_hosting"]["github"] == {"status": "unreachable"}
    assert after["code_hosting"]["gitlab"]["status"] == "ok"


def test_an_organization_without_code_hosts_gets_404(api: Any) -> None:
    """There is nothing whose health could be told (our decision)."""
    api.service.admin("org", "create", "Hostless", "--entitlement", "ServiceAPI")
    value = api.service.admin("token", "create", "--org", "hostless", "--scope", "admin")["value"]
    answer = api.get("/external/installation/health", headers={"Authorization": f"Bearer {value}"})

    assert (answer.status_code, answer.json()["error_code"]) == (404, "no_code_host")
