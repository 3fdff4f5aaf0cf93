"""Runs on a code host that is reached over HTTP and wants a token: git http-backend, for real."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.git_hosts import GitHttpHost
from tests.service_process import demo_setup, git

TOKEN = "sesame-of-the-host"


@pytest.fixture
def code_host(tmp_path: Path) -> Iterator[GitHttpHost]:
    """The demo's repositories, for those who have the token."""
    with contextlib.closing(GitHttpHost(tmp_path / "service-0" / "repositories", TOKEN)) as host:
        yield host


def setup(folder: Path, code_host: GitHttpHost) -> dict[str, Any]:
    document = demo_setup(folder)
    clone_url = f"{code_host.url}/{{path}}.git"
    document["organizations"][0]["hosts"] = [
        {"platform": "github", "probe": "git", "clone_url": clone_url, "token_env": "HOST_TOKEN_HERE"}
    ]
    document["organizations"][0]["repositories"] = [{"name": "api", "platform": "github", "path": "acme/api"}]
    return document


def test_a_run_clones_and_pushes_with_the_hosts_token(
    start: Callable[..., Any], tmp_path: Path, code_host: GitHttpHost
) -> None:
    """The commit arrives on its branch; health is ok; and the token is in no file that the service keeps."""
    document = setup(tmp_path / "service-0", code_host)
    api = start(setup=document, environment={"HOST_TOKEN_HERE": TOKEN})
    run = api.ended(api.start("write it"))
    health = api.get("/external/installation/health").json()
    bare = tmp_path / "service-0" / "repositories" / "acme" / "api.git"

    assert run["status"] == "completed"
    assert "scribe: write it" in git("log", "--format=%s", run["branch_name"], cwd=bare)
    assert health == {"code_hosting": {"github": {"status": "ok"}}}
    kept = [file for file in api.service.data_dir.rglob("*") if file.is_file()]
    assert all(TOKEN.encode() not in file.read_bytes() for file in kept)


def test_without_the_token_the_run_fails_and_says_why(
    start: Callable[..., Any], tmp_path: Path, code_host: GitHttpHost
) -> None:
    """Failed, with git's words in the log, and a host that is unauthorized."""
    api = start(setup=setup(tmp_path / "service-0", code_host), environment={"HOST_TOKEN_HERE": ""})
    run_id = api.start("write it")
    run = api.ended(run_id)

    assert run["status"] == "failed"
    assert "Authentication failed" in str(api.service.admin("run", run_id))
    assert api.get("/external/installation/health").json() == {"code_hosting": {"github": {"status": "unauthorized"}}}
