"""Runs on a code host that is reached over HTTP and wants a token: git http-backend, for real."""

import contextlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service.git_hosts import GitHttpHost
from tests.service_process import git, make_repository

TOKEN = "s3cr3t"


@pytest.mark.parametrize(
    ("variable", "status", "health"), [("SECRET", "completed", "ok"), ("UNSET", "failed", "unauthorized")]
)
def test_a_run_clones_and_pushes_with_the_hosts_token_alone(
    tenant: Callable[..., Any], tmp_path: Path, variable: str, status: str, health: str
) -> None:
    """With it the commit arrives and no file keeps it; without it the run fails, with git's words in its log."""
    bare = make_repository(tmp_path / "acme" / "api", {"README.md": "# api\n"})
    with contextlib.closing(GitHttpHost(tmp_path, TOKEN)) as there:
        host = {"platform": "github", "probe": "git", "clone_url": f"{there.url}/{{path}}.git", "token_env": variable}
        api = tenant(hosts=[host], repositories=[{"name": "api", "platform": "github", "path": "acme/api"}])
        run = api.ended(api.start("write it"))
        found = api.get("/external/installation/health").json()
    kept = subprocess.run(["grep", "-rl", TOKEN, str(api.service.data_dir)], capture_output=True, check=False).stdout

    assert (run["status"], found) == (status, {"code_hosting": {"github": {"status": health}}})
    assert kept == b""
    if status == "completed":
        assert "scribe: write it" in git("log", "--format=%s", run["branch_name"], cwd=bare)
    else:
        assert "Authentication failed" in str(api.service.admin("run", run["run_id"]))
