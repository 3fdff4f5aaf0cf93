"""Values of others where they could do harm: names of branches, what git hears, ids in paths; and a slow database."""

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from service.api.app import Readiness
from tests.service.conftest import Api
from tests.service.deployment import deployment

REFUSAL = "#!/bin/sh\nprintf '\\033]0;owned\\007refused\\n2026-01-01 ERROR forged line\\n' >&2\nexit 1\n"


@pytest.fixture
def own(start: Callable[..., Any]) -> Any:
    """A service of one's own, whose repositories a test may spoil."""
    return start(settings='[execution]\nsandbox = "none"\n')


def test_a_default_branch_that_is_no_text_fails_nothing(own: Any) -> None:
    """Git allows any bytes: the run on another branch is accepted and ends, and nothing is a fault of the service."""
    repository = own.service.repositories["acme/api"]
    name = b"refs/heads/\xff\xfe"
    subprocess.run(["git", "update-ref", name, "main"], cwd=repository, check=True)
    (repository / "HEAD").write_bytes(b"ref: " + name + b"\n")
    answer = own.post(
        "/external/agents/scribe/runs",
        {"repository": "acme/api", "branch_name": "other", "inputs": {"instructions": "write"}},
    )

    assert answer.status_code == 201, answer.text
    run_id = answer.json()["execution_id"]
    assert own.ended(run_id)["status"] == "completed", own.log(run_id)


def test_what_a_code_host_says_neither_steers_a_terminal_nor_forges_a_line_of_the_log(own: Any) -> None:
    """A refused push is told with its reason, in one line without escape sequences."""
    hook = own.service.repositories["acme/api"] / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(REFUSAL)
    hook.chmod(0o755)
    run_id = own.start("write")
    assert own.ended(run_id)["status"] == "failed"
    told = own.service.log

    assert "forged line" in told
    assert "\x1b" not in told
    assert "\x07" not in told
    assert not any(line.startswith("2026-01-01 ERROR") for line in told.splitlines())
    assert "\x1b" not in own.service.admin("run", run_id)["turns"][0]["failure"]


def test_another_organization_s_runs_are_not_there(api: Any, tenant: Callable[..., Any]) -> None:
    """Neither listed, nor continued, nor cancelled: an id that was seen somewhere opens nothing."""
    run_id = api.start("write")
    other = tenant()
    followed, cancelled = other.follow(run_id, "mine now"), other.post(f"/external/runs/{run_id}/cancel", {})
    api.ended(run_id)

    assert (followed.status_code, cancelled.status_code) == (400, 404)
    assert list(other.runs()) == []
    assert "mine now" not in str(api.service.admin("run", run_id))


@pytest.fixture
def on_postgresql(tmp_path: Path, postgres_url: str) -> Iterator[Api]:
    """A client of a service on PostgreSQL, which takes fewer texts than SQLite."""
    with deployment(tmp_path, postgres_url) as made:
        yield made.client(made.api())


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/external/runs/run_%00/cancel"),
        ("POST", "/external/runs/%ff%fe/cancel"),
        ("POST", "/external/agents/%00/runs"),
        ("POST", "/external/agents/%ff%fe/runs"),
        ("GET", "/external/runs?status=%00"),
        ("GET", "/external/runs?status=%ff%fe"),
        ("GET", "/external/runs?status=%ed%a0%80"),
        ("GET", "/external/runs?repository=%ed%a0%80/x"),
    ],
)
def test_no_text_in_a_path_or_query_is_a_fault_of_the_service(on_postgresql: Api, method: str, path: str) -> None:
    """NUL, what is not UTF-8, and halves of a surrogate pair: found by no one, or refused."""
    body = {"repository": "acme/api"} if method == "POST" else None
    answer = on_postgresql.http.request(method, path, json=body)

    assert answer.status_code < 500, answer.text


async def test_a_database_that_never_answers_is_told_in_time() -> None:
    """By the deadline, however often it is asked, with a few threads; and it is well again once it answers."""
    over = threading.Event()

    class Stuck:
        @contextlib.contextmanager
        def read(self) -> Iterator[Any]:
            over.wait()
            yield SimpleNamespace(execute=lambda _: None)

    readiness = Readiness(Stuck(), deadline_s=0.02)  # type: ignore[arg-type]  # it is asked for nothing else
    before = threading.active_count()
    try:
        answers = [await readiness.ask() for _ in range(20)]
        taken = threading.active_count() - before
    finally:
        over.set()

    assert answers == [False] * 20
    assert taken < 12
    # Those that waited end one by one.
    while not await readiness.ask():
        pass
