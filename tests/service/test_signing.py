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


def test_a_key_that_cannot_sign_is_named_at_the_start(start: Callable[..., Api], tmp_path: Path) -> None:
    """In the log and in the status, in words that say how to fix it."""
    key = tmp_path / "signing"
    api = start(settings=f'{UNBOXED}[execution.signing]\nssh_key = "{key}"\n')
    said = [api.service.admin("status")["signing"]]
    key.write_text("no key\n")
    key.chmod(0o600)
    said.append(api.service.admin("status")["signing"])
    key.unlink()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(key)], check=True)
    said.append(api.service.admin("status")["signing"])

    assert f"turns will fail: commits cannot be signed with {key}: the service's user cannot read" in api.service.log
    assert [one.partition(f"{key}: ")[2] for one in said] == [
        "the service's user cannot read this file; correct execution.signing.ssh_key, or the file's owner",
        "it is no private key in OpenSSH's form",
        "it has a passphrase; remove it with: ssh-keygen -p",
    ]
