"""GET /external/installation/health (spec 2.7, 4.5): probes of APIs and of git, against real listeners."""

import logging
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from service.hosts.health import HealthProbes, HostState
from service.settings import ProbingSettings
from service.store.hosts import Host
from service.store.repositories import Repository
from tests.lab import Drop, Hang, Raw, Respond, Server, Step
from tests.service.certificates import make_certificate
from tests.service.git_hosts import GitHttpHost
from tests.service.processes import running
from tests.service_process import make_repository
from tests.waiting import eventually

LIMITS = {"resources": {"core": {"limit": 5000, "remaining": 4999, "reset": 1_900_000_000}}}
SPENT = {"resources": {"core": {"limit": 5000, "remaining": 0, "reset": 1_900_000_000}}}


@pytest.fixture
def probes() -> Iterator[HealthProbes]:
    """Probes that remember nothing, and wait for longer than any answer needs."""
    with closing(HealthProbes(ProbingSettings(timeout_s=120, slow_s=110, cache_s=0))) as made:
        yield made


@pytest.fixture
def hasty() -> Iterator[HealthProbes]:
    """Probes for hosts that never answer."""
    with closing(HealthProbes(ProbingSettings(timeout_s=1, cache_s=0))) as made:
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
    ("github", Raw(b"220 mail.example ESMTP\r\n"), "unreachable", "BadStatusLine"),
    ("github", Drop(), "unreachable", "reset"),
    ("forgejo", Respond(200, {"version": "16.0.3+gitea-1.22.0"}), "ok", ""),
    ("forgejo", Respond(404, "<html>no API here</html>"), "degraded", "--api-url"),
    ("forgejo", Respond(429, b"", {"Retry-After": "9"}), "degraded", "rate limit"),
    ("gitlab", Respond(200, {"version": "17.5.1-ee", "revision": "f00"}), "ok", ""),
    ("gitlab", Drop("accepted"), "unreachable", ""),
    ("github", Hang(), "unreachable", "within 1 s"),
]


def test_what_a_host_answers_decides(server: Server, probes: HealthProbes, hasty: HealthProbes) -> None:
    """Refused is unauthorized, spent limits and faults are degraded, no whole answer in time is unreachable."""
    targets = {"github": "/rate_limit", "gitlab": "/api/v4/version", "forgejo": "/git/api/v1/version"}
    bases = {"github": "", "gitlab": "/api/v4/", "forgejo": "/git/api/v1"}
    for platform, step, status, reason in ANSWERS:
        server.script(step)
        host = Host(platform, "git.example", None, "api", f"{server.origin}{bases[platform]}", None, None)
        verdict = asked(hasty if isinstance(step, Hang) else probes, host)

        assert (verdict.status, reason in str(verdict.reason)) == (status, True), (platform, step, verdict)
        # A machine that stood still for the whole time has not even asked, nor does one whose connection was dropped.
        assert {one.target for one in server.requests} <= {targets[platform]}
        server.requests.clear()
    server.script(Respond(200, LIMITS))
    with closing(HealthProbes(ProbingSettings(timeout_s=60, slow_s=1e-9))) as slow:
        assert "slow_s" in str(asked(slow, github(server.origin)).reason)


def test_a_github_without_rate_limits_is_asked_for_its_versions(server: Server, probes: HealthProbes) -> None:
    """GitHub Enterprise Server with limits switched off answers 404 on /rate_limit; no address may be one."""
    server.script(Respond(404, {"message": "Rate limiting is not enabled."}), Respond(200, ["2022-11-28"]))

    assert asked(probes, github(f"{server.origin}/api/v3")).status == "ok"
    assert [request.target for request in server.requests] == ["/api/v3/rate_limit", "/api/v3/versions"]
    for address in ("http://127.0.0.1:1", "ftp://127.0.0.1", "http://", "http://127.0.0.1:99999", "x"):
        verdict = asked(probes, github(address))
        assert (verdict.status, bool(verdict.reason)) == ("unreachable", True), address


def test_the_token_comes_from_the_environment_and_is_in_no_reason(
    server: Server, probes: HealthProbes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host with token_env is asked with that token; a refusal names the variable and not its value."""
    monkeypatch.setenv("A_HOSTS_TOKEN", "sesame")
    server.script(Respond(401, {"message": "Bad credentials: sesame"}))
    verdict = asked(probes, github(server.origin, "A_HOSTS_TOKEN"))

    assert server.requests[0].headers["authorization"] == "Bearer sesame"
    assert "A_HOSTS_TOKEN" in str(verdict.reason)
    assert "sesame" not in str(verdict.reason)


def test_tls_has_to_fit_name_and_authority(
    tmp_path: Path, probes: HealthProbes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate for another name or of an unknown authority is no answer; SSL_CERT_FILE names an authority."""
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


def test_callers_at_once_share_one_question_and_hosts_are_asked_at_the_same_time(server: Server) -> None:
    """Ten callers while the host thinks: one request; and for the cache's seconds after it, none.

    Neither host waits for the other: each answers only when both were asked.
    """
    both = threading.Barrier(2, timeout=120)

    def answer(_request: object) -> Step:
        both.wait()
        return Respond(200, LIMITS)

    server.otherwise = answer
    hosts = [github(server.origin), gitlab(server.origin)]
    with closing(HealthProbes(ProbingSettings(timeout_s=120, cache_s=60))) as probes, ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda _: probes.ask(hosts, []), range(10)))
        found.append(probes.ask(hosts, []))

    assert {verdict.status for one in found for verdict in one.values()} == {"ok"}
    assert sorted(request.target for request in server.requests) == ["/rate_limit", "/version"]


def test_a_change_is_logged_once_and_why(
    server: Server, probes: HealthProbes, caplog: pytest.LogCaptureFixture
) -> None:
    """Callers get a word; the log says why, and does not repeat itself."""
    caplog.set_level(logging.INFO, "service.hosts")
    server.script(Respond(500), Respond(500), Respond(200, LIMITS), Respond(200, LIMITS))
    for _ in range(4):
        asked(probes, github(server.origin))

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "500" in caplog.messages[0]


def asked_by_git(
    probes: HealthProbes, url: str | None, *, host: str = "127.0.0.1", token_env: str | None = None
) -> HostState:
    """Ask for the health of a GitHub that is plain git, about one repository."""
    known = [] if url is None else [Repository("api", "github", "acme/api", url)]
    return probes.ask([Host("github", host, None, "git", None, None, token_env)], known)["github"]


def test_a_token_is_not_sent_to_another_host(
    tmp_path: Path, probes: HealthProbes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`git ls-remote` over HTTP: the right token ok, none or a wrong one unauthorized; another host's stays here."""
    monkeypatch.setenv("GIT_TOKEN_HERE", "sesame")
    monkeypatch.setenv("ANOTHER_TOKEN", "wrong")
    make_repository(tmp_path / "acme" / "api", {"README.md": "# api\n"})
    with closing(GitHttpHost(tmp_path, token="sesame")) as strict, closing(GitHttpHost(tmp_path)) as there:
        names = ("GIT_TOKEN_HERE", "ANOTHER_TOKEN", None)
        verdicts = [asked_by_git(probes, f"{strict.url}/acme/api.git", token_env=name) for name in names]
        url, token_env = f"{there.url}/acme/api.git", "GIT_TOKEN_HERE"
        elsewhere = asked_by_git(probes, url, host="github.example", token_env=token_env).status
        gone = asked_by_git(probes, f"{there.url}/acme/gone.git").status

    assert [verdict.status for verdict in verdicts] == ["ok", "unauthorized", "unauthorized"]
    assert "--token-env" in str(verdicts[2].reason)
    assert (elsewhere, gone) == ("ok", "degraded"), "a host that answers is not unreachable"
    assert set(there.seen) == {None}


def test_a_git_host_that_hangs_leaves_no_process(server: Server, hasty: HealthProbes) -> None:
    """The helper process in which git waits is ended with it at the time-out."""
    server.script(Hang())
    verdict = asked_by_git(hasty, f"{server.origin}/acme/api.git")

    # On a machine that stands still, the waiting caller may give up before the probe does.
    assert verdict.status == "unreachable"
    assert re.search("heard nothing for 1 s", str(verdict.reason))
    # Well before the code host itself gives up.
    eventually(lambda: not running(naming=server.origin), "the helper of git has ended")


def test_a_repository_is_asked_with_git(tmp_path: Path, probes: HealthProbes) -> None:
    """Where it was moved away, or nothing listens, is no host; nor is there one without a repository to ask for."""
    bare = make_repository(tmp_path / "acme" / "api", {"README.md": "# api\n"})
    # Numbers in an address are no status: nothing listens at 40301.
    away = (str(tmp_path / "moved.git"), "http://127.0.0.1:40301/acme/api.git")
    nothing = asked_by_git(probes, None, host="github.com")

    assert asked_by_git(probes, str(bare)).status == "ok"
    assert [asked_by_git(probes, url).status for url in away] == ["unreachable"] * 2
    assert (nothing.status, "repository add" in str(nothing.reason)) == ("degraded", True)
