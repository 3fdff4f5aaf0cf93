"""Signed commits, for code hosts that accept no others."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.conftest import UNBOXED, Api
from tests.service_process import git

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen; on Debian: openssh-client")


def test_commits_are_signed_with_the_services_key(start: Callable[..., Api], tmp_path: Path) -> None:
    """Git verifies them; a key that is gone is named before an agent works in vain."""
    key = tmp_path / "signing"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    api = start(settings=f'{UNBOXED}[execution.signing]\nssh_key = "{key}"\n')
    signers = tmp_path / "signers"
    signers.write_text(f"reviewer@runwarden.invalid {(tmp_path / 'signing.pub').read_text()}")
    bare = api.service.repositories["acme/api"]

    signed = api.ended(api.start("write it"))
    key.unlink()
    refused = api.ended(api.start("write it again"))

    assert signed["status"] == "completed", api.log(signed["run_id"])
    allowed = ("-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={signers}")
    git(*allowed, "verify-commit", signed["branch_name"], cwd=bare)
    assert refused["status"] == "failed"
    turn = api.get(f"/external/runs/{refused['run_id']}").json()["turns"][0]
    assert str(key) in turn["reason"]
    assert "scribe at work" not in api.log(refused["run_id"])
