"""Health of plain git hosts: `git ls-remote` against git http-backend, git daemon, and peers that fail."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from service.hosts.health import HealthProbes, HostState
from service.store.hosts import Host
from service.store.repositories import Repository
from tests.fault_server import FaultServer, Hang
from tests.service.git_hosts import GitHttpHost, git_daemon
from tests.service.processes import naming
from tests.service_process import make_repository
from tests.waiting import eventually


def asked(probes: HealthProbes, url: str | None, *, host: str = "127.0.0.1", token_env: str | None = None) -> HostState:
    """Ask for the health of a GitHub that is plain git, about one repository."""
    known = [] if url is None else [Repository("api", "github", "acme/api", url)]
    return probes.ask([Host("github", host, None, "git", None, None, token_env)], known)["github"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds acme/api.git; the variable GIT_TOKEN_HERE opens a host whose token is sesame."""
    monkeypatch.setenv("GIT_TOKEN_HERE", "sesame")
    monkeypatch.setenv("ANOTHER_TOKEN", "wrong")
    make_repository(tmp_path / "acme" / "api", {"README.md": "# api\n"})
    return tmp_path


def test_git_over_http_wants_its_token(folder: Path, probes: HealthProbes) -> None:
    """`git ls-remote` through git http-backend: right token ok, none or a wrong one unauthorized."""
    with closing(GitHttpHost(folder, token="sesame")) as there:
        verdicts = [
            asked(probes, f"{there.url}/acme/api.git", token_env=name)
            for name in ("GIT_TOKEN_HERE", "ANOTHER_TOKEN", None)
        ]

    assert [verdict.status for verdict in verdicts] == ["ok", "unauthorized", "unauthorized"]
    assert "--token-env" in str(verdicts[2].reason)


def test_a_token_is_not_sent_to_another_host(folder: Path, probes: HealthProbes) -> None:
    """A repository of the platform may be configured elsewhere; the host's token is not for there."""
    with closing(GitHttpHost(folder)) as elsewhere:
        verdict = asked(probes, f"{elsewhere.url}/acme/api.git", host="github.example", token_env="GIT_TOKEN_HERE")

    assert verdict.status == "ok"
    assert set(elsewhere.seen) == {None}


@pytest.mark.parametrize(
    ("repository", "status"), [("acme/api.git", "ok"), ("acme/gone.git", "degraded")], ids=["there", "gone"]
)
def test_an_open_git_host_needs_no_token(folder: Path, probes: HealthProbes, repository: str, status: str) -> None:
    """A host that answers and does not have the repository is degraded, not unreachable."""
    with closing(GitHttpHost(folder)) as there:
        verdict = asked(probes, f"{there.url}/{repository}")

    assert (verdict.status, there.seen[0]) == (status, None)


def test_a_git_daemon_is_asked_with_git(folder: Path, probes: HealthProbes) -> None:
    """What it serves is ok, what it does not is refused, and without it there is no host."""
    with git_daemon(folder) as address:
        served, refused = (asked(probes, f"{address}/acme/{name}.git") for name in ("api", "other"))
    gone = asked(probes, f"{address}/acme/api.git")
    moved = asked(probes, str(folder / "moved.git"))

    assert [served.status, refused.status, gone.status] == ["ok", "unauthorized", "unreachable"]
    assert moved.status == "unreachable", "a folder that is not there"


def test_a_port_that_looks_like_a_refusal_is_none(probes: HealthProbes) -> None:
    """Numbers in an address are no status: nothing listens at 40301."""
    assert asked(probes, "http://127.0.0.1:40301/acme/api.git").status == "unreachable"


def test_a_git_host_that_hangs_leaves_no_process(server: FaultServer, hasty_probes: HealthProbes) -> None:
    """The helper process in which git waits is ended with it at the time-out."""
    server.script(Hang())
    verdict = asked(hasty_probes, f"{server.origin}/acme/api.git")

    # On a machine that stands still, the waiting caller may give up before the probe does.
    assert verdict.status == "unreachable"
    assert re.search("(longer than|no answer within) 1 s", str(verdict.reason))
    # Well before the code host itself gives up.
    eventually(lambda: not naming(server.origin), "the helper of git has ended", 240)


def test_nothing_to_ask_is_said(probes: HealthProbes) -> None:
    """A git host without a configured repository is degraded, and the reason names the cure."""
    verdict = asked(probes, None, host="github.com")

    assert (verdict.status, "repository add" in str(verdict.reason)) == ("degraded", True)
