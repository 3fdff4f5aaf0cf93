"""Health of plain git hosts: `git ls-remote` against git http-backend, git daemon, and peers that fail."""

from pathlib import Path

import pytest

from service.hosts.health import HealthProbes, Verdict
from service.store.hosts import Host
from service.store.repositories import Repository
from tests.fault_server import FaultServer, Hang
from tests.service.conftest import eventually
from tests.service.git_hosts import GitHttpHost, git_daemon
from tests.service.processes import naming
from tests.service_process import make_repository


def asked(probes: HealthProbes, host: Host, url: str | None = None) -> Verdict:
    known = [] if url is None else [Repository("api", host.platform, "acme/api", url)]
    return probes.ask([host], known)[host.platform]


def test_git_over_http_wants_its_token(tmp_path: Path, probes: HealthProbes, monkeypatch: pytest.MonkeyPatch) -> None:
    """`git ls-remote` through git http-backend: right token ok, none or a wrong one unauthorized."""
    make_repository(tmp_path / "acme" / "api", {"README.md": "# api\n"})
    monkeypatch.setenv("GIT_TOKEN_HERE", "sesame")
    monkeypatch.setenv("ANOTHER_TOKEN", "wrong")
    host = GitHttpHost(tmp_path, token="sesame")
    url = f"{host.url}/acme/api.git"
    verdicts = {
        name: asked(probes, Host("github", "127.0.0.1", None, "git", None, None, name), url)
        for name in ("GIT_TOKEN_HERE", "ANOTHER_TOKEN", None)
    }
    host.close()

    assert {name: verdict.status for name, verdict in verdicts.items()} == {
        "GIT_TOKEN_HERE": "ok",
        "ANOTHER_TOKEN": "unauthorized",
        None: "unauthorized",
    }
    assert "--token-env" in str(verdicts[None].reason)


def test_a_token_is_not_sent_to_another_host(
    tmp_path: Path, probes: HealthProbes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repository of the platform may be configured elsewhere; the host's token is not for there."""
    make_repository(tmp_path / "acme" / "api", {"README.md": "# api\n"})
    monkeypatch.setenv("GIT_TOKEN_HERE", "sesame")
    elsewhere = GitHttpHost(tmp_path)
    host = Host("github", "github.example", None, "git", None, None, "GIT_TOKEN_HERE")
    verdict = asked(probes, host, f"{elsewhere.url}/acme/api.git")
    elsewhere.close()

    assert verdict.status == "ok"
    assert set(elsewhere.seen) == {None}


@pytest.mark.parametrize(
    ("repository", "status"), [("acme/api.git", "ok"), ("acme/gone.git", "degraded")], ids=["there", "gone"]
)
def test_an_open_git_host_needs_no_token(tmp_path: Path, probes: HealthProbes, repository: str, status: str) -> None:
    """A host that answers and does not have the repository is degraded, not unreachable."""
    make_repository(tmp_path / "acme" / "api", {"README.md": "# api\n"})
    host = GitHttpHost(tmp_path)
    verdict = asked(probes, Host("github", "127.0.0.1", None, "git", None, None, None), f"{host.url}/{repository}")
    host.close()

    assert (verdict.status, host.seen[0]) == (status, None)


def test_a_git_daemon_is_asked_with_git(tmp_path: Path, probes: HealthProbes) -> None:
    """What it serves is ok, what it does not is refused, and without it nobody is there."""
    make_repository(tmp_path / "acme" / "api", {"README.md": "# api\n"})
    host = Host("gitlab", "127.0.0.1", None, "git", None, None, None)
    with git_daemon(tmp_path) as address:
        served = asked(probes, host, f"{address}/acme/api.git")
        refused = asked(probes, host, f"{address}/acme/other.git")
    gone = asked(probes, host, f"{address}/acme/api.git")
    moved = asked(probes, host, str(tmp_path / "moved.git"))

    assert [served.status, refused.status, gone.status] == ["ok", "unauthorized", "unreachable"]
    assert moved.status == "unreachable", "a folder that is not there"


def test_a_port_that_looks_like_a_refusal_is_none(probes: HealthProbes) -> None:
    """Numbers in an address are no status: nobody listens at 40301."""
    host = Host("github", "127.0.0.1", None, "git", None, None, None)

    assert asked(probes, host, "http://127.0.0.1:40301/acme/api.git").status == "unreachable"


def test_a_git_host_that_hangs_leaves_no_process(server: FaultServer, hasty_probes: HealthProbes) -> None:
    """The helper process in which git waits is ended with it at the time-out."""
    server.script(Hang())
    host = Host("github", "127.0.0.1", None, "git", None, None, None)
    verdict = asked(hasty_probes, host, f"{server.origin}/acme/api.git")

    assert (verdict.status, "longer than 1 s" in str(verdict.reason)) == ("unreachable", True)
    # Well before the code host itself gives up.
    eventually(lambda: not naming(server.origin), "the helper of git has ended", 45)


def test_nothing_to_ask_is_said(probes: HealthProbes) -> None:
    """A git host without a configured repository is degraded, and the reason names the cure."""
    verdict = asked(probes, Host("github", "github.com", None, "git", None, "https://github.com/{path}.git", None))

    assert (verdict.status, "repository add" in str(verdict.reason)) == ("degraded", True)
