"""GET /external/installation/health (spec 2.7, 4.5): probes of APIs and of git, against real listeners."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from service.hosts.health import HealthProbes, HostState
from service.hosts.tokens import HostTokens
from service.settings import ProbingSettings
from service.store.database import Database
from service.store.hosts import Host
from service.store.repositories import Repository
from tests.lab import Drop, Hang, Respond, Server, Step
from tests.service.deployment import running
from tests.service.git_hosts import GitHttpHost
from tests.service.servers import make_certificate
from tests.service_process import make_repository
from tests.waiting import eventually

LIMITS = {"resources": {"core": {"limit": 5000, "remaining": 4999, "reset": 1_900_000_000}}}
SPENT = {"resources": {"core": {"limit": 5000, "remaining": 0, "reset": 1_900_000_000}}}


@pytest.fixture
def probes(database: Database) -> Iterator[HealthProbes]:
    """Probes without a memory, with a timeout longer than any answer needs."""
    with closing(HealthProbes(HostTokens(database), ProbingSettings(timeout_s=120, slow_s=110, cache_s=0))) as made:
        yield made


@pytest.fixture
def hasty(database: Database) -> Iterator[HealthProbes]:
    """Probes for hosts that never answer."""
    with closing(HealthProbes(HostTokens(database), ProbingSettings(timeout_s=1, cache_s=0))) as made:
        yield made


def github(api_url: str, token_env: str | None = None) -> Host:
    return Host("github", "github.example", None, "api", api_url, None, token_env)


def gitlab(api_url: str) -> Host:
    return Host("gitlab", "gitlab.example", "acme", "api", api_url, None, None)


def asked(probes: HealthProbes, host: Host) -> HostState:
    return probes.ask([host], [])[host.platform]


ANSWERS: Final[list[tuple[str, Step, str, str]]] = [
    ("github", Respond(200, LIMITS), "ok", ""),
    ("github", Respond(200, SPENT), "degraded", "rate limit"),
    ("github", Respond(401, {"message": "Bad credentials"}), "unauthorized", "--token-env"),
    ("github", Respond(403, {"message": "limited"}, {"X-RateLimit-Remaining": "0"}), "degraded", "rate limit"),
    ("github", Respond(503, "<h1>maintenance</h1>"), "degraded", "503"),
    ("github", Respond(302, b"", {"Location": "http://127.0.0.1:9/"}), "degraded", "302"),
    ("github", Respond(200, "<html>a login page</html>"), "degraded", "not answer with JSON"),
    ("github", Drop(), "unreachable", "reset"),
    ("forgejo", Respond(200, {"version": "16.0.3+gitea-1.22.0"}), "ok", ""),
    ("forgejo", Respond(404, "<html>no API here</html>"), "degraded", "--api-url"),
    ("gitlab", Respond(200, {"version": "17.5.1-ee", "revision": "f00"}), "ok", ""),
    ("github", Hang(), "unreachable", "within 1 s"),
]


def test_a_hosts_answer_decides_its_status(server: Server, probes: HealthProbes, hasty: HealthProbes) -> None:
    """A refusal is unauthorized, spent limits and faults are degraded, no complete answer in time is unreachable."""
    targets = {"github": "/rate_limit", "gitlab": "/api/v4/version", "forgejo": "/git/api/v1/version"}
    bases = {"github": "", "gitlab": "/api/v4/", "forgejo": "/git/api/v1"}
    for platform, step, status, reason in ANSWERS:
        server.script(step)
        host = Host(platform, "git.example", None, "api", f"{server.origin}{bases[platform]}", None, None)
        verdict = asked(hasty if isinstance(step, Hang) else probes, host)

        assert (verdict.status, reason in str(verdict.reason)) == (status, True), (platform, step, verdict)
        # A machine that was suspended, or whose connection was dropped, has not even sent the request.
        assert {one.target for one in server.requests} <= {targets[platform]}
        server.requests.clear()


def test_the_token_from_the_environment_is_in_no_reason(
    server: Server, probes: HealthProbes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host with token_env gets that token; a refusal names the variable and not its value."""
    monkeypatch.setenv("A_HOSTS_TOKEN", "sesame")
    server.script(Respond(401, {"message": "Bad credentials: sesame"}))
    verdict = asked(probes, github(server.origin, "A_HOSTS_TOKEN"))

    assert server.requests[0].headers["authorization"] == "Bearer sesame"
    assert "A_HOSTS_TOKEN" in str(verdict.reason)
    assert "sesame" not in str(verdict.reason)


def test_a_certificate_must_match_name_and_authority(
    tmp_path: Path, probes: HealthProbes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate for another name or of an unknown authority fails; SSL_CERT_FILE names an authority."""
    fitting, foreign = make_certificate(tmp_path / "fits"), make_certificate(tmp_path / "not", "DNS:elsewhere.example")
    verdicts = []
    for certificate, trusted in ((fitting, fitting), (fitting, foreign), (foreign, foreign)):
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted.file))
        with Server(tls=certificate.server_context()) as server:
            server.script(Respond(200, {}))
            verdicts.append(asked(probes, github(server.origin)))

    assert [one.status for one in verdicts] == ["ok", "unreachable", "unreachable"]
    assert "SSL_CERT_FILE" in str(verdicts[1].reason)
    assert "mismatch" in str(verdicts[2].reason)


def asked_by_git(
    probes: HealthProbes, url: str | None, *, host: str = "127.0.0.1", token_env: str | None = None
) -> HostState:
    """Request the health of a GitHub that is plain git, for one repository."""
    known = [] if url is None else [Repository("api", "github", "acme/api", url)]
    return probes.ask([Host("github", host, None, "git", None, None, token_env)], known)["github"]


def test_a_token_is_not_sent_to_another_host(
    tmp_path: Path, probes: HealthProbes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `git ls-remote` over HTTP a missing or wrong token is unauthorized; another host never gets it."""
    monkeypatch.setenv("GIT_TOKEN_HERE", "sesame")
    monkeypatch.setenv("ANOTHER_TOKEN", "wrong")
    make_repository(tmp_path / "acme" / "api", {"README.md": "# api\n"})
    with closing(GitHttpHost(tmp_path, token="sesame")) as strict, closing(GitHttpHost(tmp_path)) as there:
        names = ("GIT_TOKEN_HERE", "ANOTHER_TOKEN", None)
        verdicts = [asked_by_git(probes, f"{strict.origin}/acme/api.git", token_env=name) for name in names]
        url, token_env = f"{there.origin}/acme/api.git", "GIT_TOKEN_HERE"
        elsewhere = asked_by_git(probes, url, host="github.example", token_env=token_env).status
        gone = asked_by_git(probes, f"{there.origin}/acme/gone.git").status

    assert [verdict.status for verdict in verdicts] == ["ok", "unauthorized", "unauthorized"]
    assert "--token-env" in str(verdicts[2].reason)
    assert (elsewhere, gone) == ("ok", "degraded"), "a host that answers is not unreachable"
    assert set(there.seen) == {None}


def test_a_git_host_that_hangs_leaves_no_process(server: Server, hasty: HealthProbes) -> None:
    """Git's helper process is stopped with it at the timeout."""
    server.script(Hang())
    verdict = asked_by_git(hasty, f"{server.origin}/acme/api.git")

    # On a suspended machine, the waiting caller may give up before the probe does.
    assert verdict.status == "unreachable"
    assert re.search("heard nothing for 1 s", str(verdict.reason))
    # Well before the code host itself gives up.
    eventually(lambda: not running(naming=server.origin), "the helper of git has ended")
