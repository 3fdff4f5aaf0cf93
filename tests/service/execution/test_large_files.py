"""The real git-lfs, submodules, and names that differ only in case: nothing is lost silently."""

import contextlib
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Received, Respond, Step
from tests.service.conftest import Api, Make, placed
from tests.service.git_hosts import GitHttpHost, push
from tests.service_process import git, make_repository

NEEDS_LFS = pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not installed")
CHANGES = """
print("content:", pathlib.Path("old.bin").read_text())
if "lfs" in str(pathlib.Path(os.environ["GIT_DIR"], "config").read_text()):
    print(subprocess.run(["git", "status", "--short"], capture_output=True))
pathlib.Path("old.bin").write_text("changed")
pathlib.Path("new.bin").write_text("new")
pathlib.Path("plain.txt").write_text("plain")
"""


def pointer(content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(content)}\n"


class LfsHost:
    """A code host over HTTP with a repository whose `*.bin` are in Git LFS."""

    def __init__(self, folder: Path) -> None:
        self.objects = {hashlib.sha256(one).hexdigest(): one for one in (b"old", b"same")}
        files = {".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n"}
        self.bare = make_repository(
            folder / "lfs" / "api", files | {"old.bin": pointer(b"old"), "same.bin": pointer(b"same")}
        )
        self.host = GitHttpHost(folder / "lfs")
        self.host.fault = self._answer

    def _answer(self, request: Received) -> Step | None:
        oid = request.path.rpartition("/")[2]
        if request.path.endswith("/info/lfs/objects/batch"):
            asked = request.json()
            listed = [self._object(one, asked["operation"]) for one in asked["objects"]]
            kind = {"Content-Type": "application/vnd.git-lfs+json"}
            return Respond(200, json.dumps({"transfer": "basic", "objects": listed}).encode(), kind)
        if "/objects-of-lfs/" not in request.path:
            return None
        if request.method == "PUT":
            self.objects[oid] = request.body
        return Respond(200, self.objects[oid])

    def _object(self, asked: dict[str, Any], operation: str) -> dict[str, Any]:
        is_there = asked["oid"] in self.objects
        answer = {"oid": asked["oid"], "size": asked["size"], "authenticated": True}
        if operation == "download" and not is_there:
            return answer | {"error": {"code": 404, "message": "there is no such object"}}
        actions = {operation: {"href": f"{self.host.origin}/objects-of-lfs/{asked['oid']}"}}
        return answer | ({} if operation == "upload" and is_there else {"actions": actions})


@pytest.fixture
def lfs(tmp_path: Path) -> Any:
    made = LfsHost(tmp_path)
    yield made
    made.host.close()


def worked(tenant: Make, url: object, words: str, **setup: Any) -> tuple[Api, dict[str, Any]]:
    """Let an agent do a turn in a repository, and return the turn."""
    api = tenant(repositories=[placed(url, setup=setup)])
    return api, api.work(words)


@NEEDS_LFS
def test_agents_see_large_files_and_commits_have_pointers(tenant: Make, lfs: LfsHost) -> None:
    """Changed and new ones go to the host's LFS server before the push; others stay unchanged."""
    _, turn = worked(tenant, f"{lfs.host.origin}/api.git", CHANGES, lfs=True)
    changed = git("diff", "--name-only", "main", turn["branch"], cwd=lfs.bare).split()
    shown = {name: git("show", f"{turn['branch']}:{name}", cwd=lfs.bare) for name in changed}

    assert turn["outcome"] == "completed", turn["reason"]
    assert "content: old" in turn["log"]
    assert "stdout=b''" in turn["log"], "git status shows no change before the agent makes one"
    assert "Git LFS: 2 files" in turn["log"]
    pointers = {"old.bin": pointer(b"changed").strip(), "new.bin": pointer(b"new").strip()}
    assert shown == pointers | {"plain.txt": "plain"}
    assert {b"changed", b"new"} <= set(lfs.objects.values())


@NEEDS_LFS
def test_a_local_repository_stores_large_files(tenant: Make, lfs: LfsHost) -> None:
    """A repository on the same machine keeps their contents next to it."""
    objects = lfs.bare / "lfs/objects"
    for oid, content in lfs.objects.items():
        file = objects / oid[:2] / oid[2:4] / oid
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    _, turn = worked(tenant, lfs.bare, CHANGES, lfs=True)

    assert turn["outcome"] == "completed", turn["reason"]
    assert git("show", f"{turn['branch']}:new.bin", cwd=lfs.bare) == pointer(b"new").strip()
    assert [*objects.rglob(hashlib.sha256(b"new").hexdigest())] != []


def test_large_files_are_refused_by_name_unless_they_are_allowed(tenant: Make, lfs: LfsHost) -> None:
    """Their contents would otherwise become ordinary files of the repository."""
    _, turn = worked(tenant, lfs.bare, CHANGES)

    assert (turn["outcome"], turn["files"]) == ("failed", 3)
    said = "the agent changed files that the repository keeps in Git LFS: new.bin, old.bin; allow"
    assert turn["reason"].startswith(said)
    assert git("branch", "--list", turn["branch"], cwd=lfs.bare) == ""


@NEEDS_LFS
def test_a_missing_large_file_is_an_error(tenant: Make, lfs: LfsHost) -> None:
    """The agent is not started with a pointer or anything else in place of the file."""
    oid = hashlib.sha256(b"old").hexdigest()
    lfs.objects[oid] = b"lie"
    _, turn = worked(tenant, f"{lfs.host.origin}/api.git", CHANGES, lfs=True)

    assert turn["outcome"] == "failed"
    assert oid[:10] in turn["reason"] or "old.bin" in turn["reason"], turn["reason"]
    assert "content:" not in turn["log"]


def link(bare: Path, modules: dict[str, tuple[str, str]]) -> None:
    """Add submodules to a bare repository's main branch: the address and the commit of each path."""
    text = "".join(f'[submodule "{path}"]\n\tpath = {path}\n\turl = {url}\n' for path, (url, _) in modules.items())
    links = "".join(f"M 160000 {sha} {path}\n" for path, (_, sha) in modules.items())
    push(bare, "main", {".gitmodules": text}, more=links)


def test_submodules_are_fetched_if_configured(tenant: Make, tmp_path: Path) -> None:
    """Relative addresses work too.

    Other hosts' submodules are reported, changes are not committed, and no link is lost. Names that differ only in case
    are committed, since some projects need them, and reported.
    """
    hosted = tmp_path / "hosted" / "acme"
    inner = make_repository(hosted / "inner", {"inner.txt": "deep"})
    lib = make_repository(hosted / "lib", {"code.c": "x"})
    bare = make_repository(hosted / "api", {"README.md": "x"})
    with contextlib.closing(GitHttpHost(tmp_path / "hosted")) as host:
        head, old = (git("rev-parse", "main", cwd=one) for one in (inner, lib))
        link(lib, {"inner": (f"{host.origin}/acme/inner.git", head), "loop": ("../lib.git", old)})
        modules = {"vendor/lib": ("../lib.git", git("rev-parse", "main", cwd=lib))}
        modules |= {"vendor/dot": ("../%2e%2e/inner.git", head)}
        link(bare, modules | {"vendor/far": ("https://elsewhere.example/x.git", head)})
        words = "print('seen:', pathlib.Path('vendor/lib/inner/inner.txt').read_text())\n"
        words += "pathlib.Path('vendor/lib/code.c').write_text('y')\npathlib.Path('own.txt').write_text('o')\n"
        words += "shutil.rmtree('vendor/far')\npathlib.Path('vendor/dot/lost').touch()\n"
        words += "for name in ('OWN.txt', 'n\\u00fc', 'nu\\u0308'): pathlib.Path(name).touch()"
        _, turn = worked(tenant, f"{host.origin}/acme/api.git", words, submodules=True)

    assert turn["outcome"] == "completed", (turn["reason"], turn["log"])
    assert "seen: deep" in turn["log"]
    assert "the submodule vendor/far is not fetched: only those on 127.0.0.1 are" in turn["log"]
    assert "the submodule vendor/dot is not fetched: acme/%2e%2e/inner is outside" in turn["log"]
    assert "files in submodules are not committed: vendor/dot, vendor/lib\n" in turn["log"]
    alike = "as on macOS and Windows: OWN.txt, own.txt, nu\u0308, n\u00fc"
    assert alike in turn["log"]
    changed = git("diff", "-z", "--name-only", "main", turn["branch"], cwd=bare).split("\0")
    assert changed == ["OWN.txt", "nu\u0308", "n\u00fc", "own.txt", ""]
