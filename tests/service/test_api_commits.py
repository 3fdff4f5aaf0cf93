"""Commits made through GitHub's API, for branches that take only signed ones; GitHub signs those of an App."""

import os
import subprocess
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from joserfc.jwk import RSAKey

from tests.lab import Received, Respond, Step
from tests.service.conftest import UNBOXED, Api
from tests.service.test_host_tokens import APP, AppHost
from tests.service_process import git, make_repository, put_hook
from tests.waiting import COLD_START_S, eventually

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
    """GitHub's Git database over a bare repository, whose rule takes signed commits only, as documented."""

    def __init__(self, host: AppHost, bare: Path) -> None:
        self._host, self._bare = host, bare
        self.signs = True
        self.is_down = False
        self.before_refs: Callable[[], object] = lambda: None
        self.asked: list[str] = []
        host.git_database = self.answer
        # A push of git has no commit that GitHub signed.
        put_hook(bare, "pre-receive", "echo 'GH013: Commits must have verified signatures.' >&2; exit 1")

    def answer(self, request: Received, path: str) -> Step:
        if request.headers.get("authorization") != f"Bearer minted-{self._host.minted}":
            return Respond(401, {"message": "Bad credentials"})
        given = request.json()
        self.asked.append(f"{request.method} {path}")
        try:
            match request.method, path.split("/", maxsplit=1)[0]:
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
                    self._git("merge-base", "--is-ancestor", f"refs/{path.partition('/')[2]}", given["sha"])
                    self._git("update-ref", f"refs/{path.partition('/')[2]}", given["sha"])
                    return Respond(200, {"ref": f"refs/{path.partition('/')[2]}"})
        except (subprocess.CalledProcessError, KeyError, AssertionError) as error:
            return Respond(422, {"message": f"Unprocessable: {error}"})
        return Respond(404, {"message": "Not Found"})

    def _git(self, *words: str, given: bytes = b"", index: Path | None = None) -> str:
        environment = {**os.environ, "GIT_INDEX_FILE": str(index)} if index else None
        command = ["git", "-C", str(self._bare), *words]
        return (
            subprocess.run(command, input=given, capture_output=True, check=True, env=environment)
            .stdout.decode()
            .strip()
        )

    def _tree(self, given: dict[str, Any]) -> str:
        index = self._bare / "api-index"
        index.unlink(missing_ok=True)
        self._git("read-tree", given.get("base_tree") or "--empty", index=index)
        present = set(self._git("ls-files", "-z", index=index).split("\0"))
        for one in given["tree"]:
            assert MODES[one["mode"]] == one["type"], one
            assert ("content" in one) != ("sha" in one), one
            sha = (
                self._git("hash-object", "-w", "--stdin", given=one["content"].encode())
                if "content" in one
                else one["sha"]
            )
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
        lines += (
            ["gpgsig -----BEGIN PGP SIGNATURE-----", " of GitHub", " -----END PGP SIGNATURE-----"] if is_signed else []
        )
        text = "\n".join([*lines, "", given["message"], ""])
        sha = self._git("hash-object", "-t", "commit", "-w", "--stdin", given=text.encode())
        return {"sha": sha, "verification": {"verified": is_signed, "reason": "valid" if is_signed else "unsigned"}}


class Setting:
    """A service with a GitHub App on a repository with that rule."""

    def __init__(self, start: Callable[..., Api], folder: Path, *, sign: bool) -> None:
        files = {"README.md": "# api\n", "tool.sh": "true\n"}
        self.bare = make_repository(folder / "hosted" / "acme" / "api", files, {"fix": {"fix.txt": "1\n"}})
        key = RSAKey.generate_key(2048)
        (folder / "app.pem").write_bytes(key.as_pem(private=True))
        self.host = AppHost(folder / "hosted", key)
        self.database = GitDatabase(self.host, self.bare)
        app = {"id": APP, "key_file": str(folder / "app.pem"), "sign": sign}
        entry = {"platform": "github", "host": "127.0.0.1", "clone_url": f"{self.host.url}/{{path}}.git", "app": app}
        organization: dict[str, Any] = {"name": "Acme", "slug": "acme", "entitlements": ["ServiceAPI"]}
        organization |= {"hosts": [entry | {"api_url": f"{self.host.url}/api/v3"}]}
        organization |= {"tokens": [{"alias": "tests", "scopes": ["admin"]}]}
        organization |= {"repositories": [{"name": "api", "platform": "github", "path": "acme/api"}]}
        agents = [
            {"name": name, "argv": ["sh", "-c", WORK], "commits": commits}
            for name, commits in (("one", "one"), ("keeps", "keep"))
        ]
        self.api = start(
            settings=f"{UNBOXED}[forge]\nretry_s = 0.1\n", setup={"organizations": [organization], "agents": agents}
        )

    def run(self, agent: str, **fields: Any) -> dict[str, Any]:
        return self.api.ended(self.api.begin(agent, fields=fields))

    def reason(self, run: dict[str, Any]) -> str:
        return str(self.api.turns(run["run_id"])[-1]["reason"])


@pytest.fixture
def setting(start: Callable[..., Api], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Setting]:
    made = Setting(start, tmp_path, sign=getattr(request, "param", True))
    with closing(made.host):
        yield made


def test_a_change_of_any_kind_is_committed_and_signed_by_github(setting: Setting) -> None:
    """Text, binary, large and executable files, links, deletions and modes; one commit, or those of the agent."""
    for agent, count in (("one", 1), ("keeps", 2)):
        run = setting.run(agent)

        assert run["status"] == "completed", setting.api.log(run["run_id"])
        made = git("rev-list", f"main..{run['branch_name']}", cwd=setting.bare).split()
        assert len(made) == count
        assert all("gpgsig" in git("cat-file", "commit", one, cwd=setting.bare) for one in made)
        listed = git("ls-tree", "-r", "-z", run["branch_name"], cwd=setting.bare).split("\0")[:-1]
        files = {f"{head.split()[0]} {path}" for head, _, path in (one.partition("\t") for one in listed)}
        wanted = {"120000 link", "100755 run.sh", "100755 tool.sh", "100644 image.png", "100644 long.txt"}
        assert files == wanted | {"100644 src/more.txt", "100644 src/naïve name.txt"}
        assert git("cat-file", "blob", f"{run['branch_name']}:src/naïve name.txt", cwd=setting.bare) == "café"
        assert setting.api.turns(run["run_id"])[-1]["commit"] == made[0]


def test_a_branch_that_moves_gets_the_change_on_top(setting: Setting) -> None:
    """GitHub refuses what is no fast-forward; the next turn goes on top of what it made itself."""

    def move() -> None:
        setting.database.before_refs = lambda: None
        tree = git("rev-parse", "fix^{tree}", cwd=setting.bare)
        moved = git("commit-tree", tree, "-p", "fix", "-m", "Someone else's", cwd=setting.bare)
        git("update-ref", "refs/heads/fix", moved, cwd=setting.bare)

    setting.database.before_refs = move
    run = setting.run("one", branch_name="fix")

    assert run["status"] == "completed", setting.api.log(run["run_id"])
    assert "Someone else's" in git("log", "--format=%s", "fix", cwd=setting.bare)
    assert git("ls-tree", "--name-only", "fix", "image.png", cwd=setting.bare) == "image.png"


def test_an_outage_of_the_api_loses_no_work(setting: Setting) -> None:
    """The agent does not run again."""
    setting.database.is_down = True
    run_id = setting.api.begin("one")

    def waits() -> bool:
        return "waiting for" in (setting.api.turns(run_id)[-1]["reason"] or "")

    eventually(waits, "it waits for its code host", COLD_START_S, saw=lambda: setting.api.log(run_id))
    setting.database.is_down = False
    run = setting.api.ended(run_id)

    assert run["status"] == "completed", setting.api.log(run_id)
    assert setting.api.log(run_id).count("the agent is done: only its commit is still to be pushed") >= 1
    assert "gpgsig" in git("cat-file", "commit", run["branch_name"], cwd=setting.bare)


@pytest.mark.parametrize("setting", [False], indirect=True)
def test_without_it_the_rule_refuses_the_push(setting: Setting) -> None:
    """The reason is GitHub's own."""
    run = setting.run("one")

    assert run["status"] == "failed"
    assert "Commits must have verified signatures" in setting.reason(run)
    assert setting.database.asked == []


def test_a_commit_that_github_does_not_sign_is_not_pushed(setting: Setting) -> None:
    """The reason names the fix, and the change is kept."""
    setting.database.signs = False
    run = setting.run("one")

    assert "GitHub did not sign the commit (unsigned): remove sign from the App" in setting.reason(run)
    assert setting.database.asked[-1] == "POST commits"
    assert git("branch", "--list", run["branch_name"], cwd=setting.bare) == ""
