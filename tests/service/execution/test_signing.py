"""Signed commits, for code hosts that require them: with a key, or through GitHub's API, which signs them."""

import os
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from service.execution.commits import check_signing
from service.git import GitCommandError
from tests.lab import Received, Respond, Step
from tests.service.conftest import UNBOXED, Api, Make, placed
from tests.service.forge.test_host_tokens import APP, AppHost, own_key
from tests.service.git_hosts import push
from tests.service_process import git, make_repository, put_hook
from tests.waiting import COLD_START_S, eventually

NEEDS_KEYGEN: Final = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="no ssh-keygen; on Debian: openssh-client"
)


@NEEDS_KEYGEN
def test_commits_are_signed_with_the_services_key(start: Callable[..., Api], tmp_path: Path) -> None:
    """Git verifies them; an unusable key is named in log and status, before an agent works in vain."""
    key, signers = tmp_path / "signing", tmp_path / "signers"
    api = start(settings=f'{UNBOXED}[execution.signing]\nssh_key = "{key}"\n')
    bare = api.service.repositories["acme/api"]

    assert f"turns will fail: commits cannot be signed with {key}: the service's user cannot read" in api.service.log
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    signed = api.work("write it", "scribe")
    signers.write_text(f"reviewer@runwarden.invalid {(tmp_path / 'signing.pub').read_text()}")
    key.unlink()
    refused = api.work("write it again", "scribe")

    assert signed["outcome"] == "completed", signed["log"]
    allowed = ("-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={signers}")
    git(*allowed, "verify-commit", signed["branch"], cwd=bare)
    assert refused["outcome"] == "failed"
    assert str(key) in refused["reason"]
    assert "scribe at work" not in refused["log"]


@NEEDS_KEYGEN
def test_an_unusable_signing_key_is_explained(tmp_path: Path) -> None:
    """The file may not be a key, or the key may need a passphrase that nobody can type."""
    locked, other = tmp_path / "locked", tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(locked)], check=True)
    other.write_text("no key\n")
    other.chmod(0o600)
    for key, why in (
        (locked, "it has a passphrase; remove it with: ssh-keygen -p"),
        (other, "it is no private key in"),
    ):
        with pytest.raises(GitCommandError, match=f"commits cannot be signed with {key}: {why}"):
            check_signing(key)


MODES: Final = {"100644": "blob", "100755": "blob", "120000": "blob", "160000": "commit", "040000": "tree"}
WORK: Final = """
cat > /dev/null
mkdir -p src
printf 'caf\\303\\251\\r\\n' > 'src/naïve name.txt'
printf '\\000\\377\\001' > image.png
printf '#!/bin/sh\\n' > run.sh; chmod +x run.sh
ln -s run.sh link
head -c 100000 /dev/zero | tr '\\0' 'x' > long.txt
rm README.md; chmod +x tool.sh
git add --all; git commit -q -m 'First step'
echo more > src/more.txt
"""


class GitDatabase:
    """GitHub's Git database over a bare repository that only accepts signed commits, as documented."""

    def __init__(self, host: AppHost, bare: Path) -> None:
        self._host, self._bare = host, bare
        self.signs = True
        self.is_down = False
        self.before_refs: Callable[[], object] = lambda: None
        self.asked: list[str] = []
        host.git_database = self.answer
        # A commit pushed by git is not signed by GitHub.
        put_hook(bare, "pre-receive", "echo 'GH013: Commits must have verified signatures.' >&2; exit 1")

    def answer(self, request: Received, path: str) -> Step:
        if request.headers.get("authorization") != f"Bearer minted-{self._host.minted}":
            return Respond(401, {"message": "Bad credentials"})
        given, (kind, _, rest) = request.json(), path.partition("/")
        self.asked.append(f"{request.method} {path}")
        try:
            match request.method, kind:
                case "POST", "blobs":
                    data = b64decode(given["content"]) if given["encoding"] == "base64" else given["content"].encode()
                    return Respond(201, {"sha": self._git("hash-object", "-w", "--stdin", given=data)})
                case "POST", "trees":
                    return Respond(201, {"sha": self._tree(given)})
                case "POST", "commits":
                    return Respond(201, self._commit(given))
                case "POST", "refs":
                    if self.is_down:
                        return Respond(503, {"message": "Service Unavailable"})
                    self._git("update-ref", given["ref"], given["sha"], "0" * 40)
                    return Respond(201, {"ref": given["ref"]})
                case "PATCH", "refs":
                    self.before_refs()
                    self._git("merge-base", "--is-ancestor", f"refs/{rest}", given["sha"])
                    self._git("update-ref", f"refs/{rest}", given["sha"])
                    return Respond(200, {"ref": f"refs/{rest}"})
        except (subprocess.CalledProcessError, KeyError, AssertionError) as error:
            return Respond(422, {"message": f"Unprocessable: {error}"})
        return Respond(404, {"message": "Not Found"})

    def _git(self, *words: str, given: bytes = b"", index: Path | None = None) -> str:
        environment = {**os.environ, "GIT_INDEX_FILE": str(index)} if index else None
        command = ["git", "-C", str(self._bare), *words]
        done = subprocess.run(command, input=given, capture_output=True, check=True, env=environment)
        return done.stdout.decode().strip()

    def _tree(self, given: dict[str, Any]) -> str:
        index = self._bare / "api-index"
        index.unlink(missing_ok=True)
        self._git("read-tree", given.get("base_tree") or "--empty", index=index)
        present = set(self._git("ls-files", "-z", index=index).split("\0"))
        for one in given["tree"]:
            assert MODES[one["mode"]] == one["type"], one
            assert ("content" in one) != ("sha" in one), one
            sha = one.get("sha")
            if "content" in one:
                sha = self._git("hash-object", "-w", "--stdin", given=one["content"].encode())
            if sha is None:
                assert one["path"] in present, "a file that does not exist cannot be deleted"
            entry = f"{one['mode'] if sha else 0} {sha or '0' * 40}\t{one['path']}\0"
            self._git("update-index", "-z", "--index-info", given=entry.encode(), index=index)
        return self._git("write-tree", index=index)

    def _commit(self, given: dict[str, Any]) -> dict[str, Any]:
        for sha in (given["tree"], *given["parents"]):
            self._git("cat-file", "-e", sha)
        is_signed = self.signs and not {"author", "committer", "signature"} & {*given}
        lines = [f"tree {given['tree']}", *(f"parent {one}" for one in given["parents"])]
        lines += ["author reviewer[bot] <41+reviewer[bot]@users.noreply.github.com> 1800000000 +0000"]
        lines += ["committer GitHub <noreply@github.com> 1800000000 +0000"]
        lines += ["gpgsig -----BEGIN PGP SIGNATURE-----", " -----END PGP SIGNATURE-----"] if is_signed else []
        text = "\n".join([*lines, "", given["message"], ""])
        sha = self._git("hash-object", "-t", "commit", "-w", "--stdin", given=text.encode())
        return {"sha": sha, "verification": {"verified": is_signed, "reason": "valid" if is_signed else "unsigned"}}


class Setting:
    """An organization with a GitHub App on a repository with that rule."""

    def __init__(self, tenant: Make, patient: Any, folder: Path) -> None:
        files = {"README.md": "# api\n", "tool.sh": "true\n"}
        self.bare = make_repository(folder / "hosted" / "acme" / "api", files, {"fix": {"fix.txt": "1\n"}})
        key = own_key()
        (folder / "app.pem").write_bytes(key.as_pem(private=True))
        self.host = AppHost(folder / "hosted", key)
        self.database = GitDatabase(self.host, self.bare)
        entry = {"platform": "github", "host": "127.0.0.1", "clone_url": f"{self.host.origin}/{{path}}.git"}
        entry |= {"api_url": f"{self.host.origin}/api/v3"}
        app = {"id": APP, "key_file": str(folder / "app.pem"), "sign": True}
        shell = ["sh", "-c", WORK]
        agents = [{"name": name, "argv": shell, "commits": name} for name in ("one", "keep")]
        self.api = tenant(on=patient, hosts=[entry | {"app": app}], repositories=[placed()], agents=agents)

    def run(self, agent: str, **fields: Any) -> dict[str, Any]:
        return self.api.worked(self.api.begin(agent, fields=fields))


@pytest.fixture
def setting(tenant: Make, patient: Any, tmp_path: Path) -> Iterator[Setting]:
    made = Setting(tenant, patient, tmp_path)
    with closing(made.host):
        yield made


def test_every_kind_of_change_is_signed_by_github(setting: Setting) -> None:
    """Text, binary, large and executable files, links, deletions and modes work; the commits are the agent's."""
    turn = setting.run("keep")

    assert turn["outcome"] == "completed", turn["log"]
    made = git("rev-list", f"main..{turn['branch']}", cwd=setting.bare).split()
    assert all("gpgsig" in git("cat-file", "commit", one, cwd=setting.bare) for one in made)
    listed = git("ls-tree", "-r", "-z", turn["branch"], cwd=setting.bare).split("\0")[:-1]
    files = {f"{head.split()[0]} {path}" for head, _, path in (one.partition("\t") for one in listed)}
    wanted = {"120000 link", "100755 run.sh", "100755 tool.sh", "100644 image.png", "100644 long.txt"}
    assert files == wanted | {"100644 src/more.txt", "100644 src/naïve name.txt"}
    assert git("cat-file", "blob", f"{turn['branch']}:src/naïve name.txt", cwd=setting.bare) == "café"
    assert (turn["commit"], len(made)) == (made[0], 2)


def test_api_failures_lose_no_work(setting: Setting) -> None:
    """If GitHub refuses a non-fast-forward, the change goes on top.

    After an outage no agent runs again. If GitHub does not sign a commit, it is not pushed, and the reason has the fix.
    """

    def move() -> None:
        setting.database.before_refs = lambda: None
        push(setting.bare, "fix", {})

    setting.database.before_refs = move
    turn = setting.run("one", branch_name="fix")
    assert turn["outcome"] == "completed", turn["log"]
    assert "theirs" in git("log", "--format=%s", "fix", cwd=setting.bare)
    assert git("ls-tree", "--name-only", "fix", "image.png", cwd=setting.bare) == "image.png"

    setting.database.is_down = True
    run_id = setting.api.begin("one")
    waits = lambda: "waiting for" in (setting.api.turns(run_id)[-1]["reason"] or "")  # noqa: E731
    eventually(waits, "it waits for its code host", COLD_START_S, saw=lambda: setting.api.log(run_id))
    setting.database.is_down = False
    turn = setting.api.worked(run_id)
    assert turn["outcome"] == "completed", turn["log"]
    assert "the agent is done: only its commit is still to be pushed" in turn["log"]
    assert "gpgsig" in git("cat-file", "commit", turn["branch"], cwd=setting.bare)

    setting.database.signs = False
    turn = setting.run("one")
    assert "GitHub did not sign the commit (unsigned): remove sign from the App" in turn["reason"]
    assert setting.database.asked[-1] == "POST commits"
    assert git("branch", "--list", turn["branch"], cwd=setting.bare) == ""
