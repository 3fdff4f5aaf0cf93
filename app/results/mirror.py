"""Mirrors: one bare copy of each repository address, without its files' contents until a change is read."""

import asyncio
import fcntl
import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec import Struct

from app.engine.text import safe_text
from app.results.diff import Patch
from app.results.git import Git, GitError, TooLargeError
from storage.records.results import SUBMODULE_MODE, Change, ChangedFile

TRAILER: Final = "Runwarden-Run"
EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_DEFAULT: Final = "refs/fetched/default"
_NOT_A_BRANCH: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)|^[/.]|[/.]$|^$")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_MOST_COMMITS: Final = 2_000
_MOST_PATCH: Final = 64 << 20
_MOST_PACKS: Final = 50
"""Each fetch leaves one, and each makes every later reading a little slower."""
_UNTOUCHED_S: Final = 3_600.0
_DIFF: Final = ("--no-ext-diff", "--no-textconv", "--no-color", "-M", "--ignore-submodules=none")
_FIELDS: Final = "%H%x00%P%x00%ct%x00%s%x00%(trailers:key=" + TRAILER + ",valueonly,separator=%x2C)"
_PROMISOR: Final = ("-c", "remote.origin.promisor=true", "-c", "remote.origin.partialclonefilter=blob:none")
"""Given to `git fetch` alone: a reading command with it would fail at a missing content, or fetch it."""
_BLOB: Final = re.compile(rb":(\d{6}) (\d{6}) ([0-9a-f]+) ([0-9a-f]+) ")


class Commit(Struct, frozen=True):
    """A commit of a branch."""

    id: str
    parents: tuple[str, ...]
    at: datetime
    """The author's time of the commit, in whole seconds."""
    subject: str
    marks: tuple[str, ...]
    """The turns that the commit names as its own, see `TRAILER`."""


class Heads(Struct, frozen=True):
    """A repository's branches as of the last fetch."""

    branch: str | None
    """The branch's commit; None: the branch is gone."""
    default: str | None
    default_name: str
    problem: str = ""
    """Why the repository could not be asked just now: the rest is older."""


class Mirror:
    """The mirror of one address; any number of processes may use it at once."""

    def __init__(self, folder: Path, address: str, git: Git) -> None:
        name = sha256(address.encode()).hexdigest()[:24]
        self.git_dir = folder / f"{name}.git"
        self._lock_file = folder / f"{name}.lock"
        self.address = address
        self.git = git
        self._is_local = address.startswith("/")

    async def update(self, branch: str) -> Heads:
        """Fetch a branch and the default branch; if that fails, return the older state.

        Raises:
            GitError: The repository cannot be reached and was never fetched, or the name is not a branch's.
        """
        if _NOT_A_BRANCH.search(branch):
            raise GitError("The run's branch has a name that git does not allow.")
        ref = f"refs/fetched/{sha256(branch.encode()).hexdigest()[:24]}"
        async with self._alone():
            if not (self.git_dir / "default-branch").exists():
                self.git_dir.mkdir(mode=0o700, exist_ok=True)
                await self.git.read(self.git_dir, "init", "--quiet", "--bare", "--template=")
                await self.git.read(self.git_dir, "config", "remote.origin.url", self.address)
            try:
                name = await self._fetch(branch, ref)
                problem = ""
            except GitError as error:
                if await self._commit(_DEFAULT) is None:
                    raise
                name, problem = "", str(error)
                with suppress(OSError):
                    name = (self.git_dir / "default-branch").read_text(encoding="utf-8")
            return Heads(await self._commit(ref), await self._commit(_DEFAULT), name, problem)

    async def _fetch(self, branch: str, ref: str) -> str:
        """Bring the mirror up to date; the name of the default branch."""
        listed = await self._listed("HEAD", f"refs/heads/{branch}", f"refs/remotes/origin/{branch}")
        # The default branch of a checkout is that of its origin: its own HEAD is the checked-out branch.
        heads = [listed[head] for head in ("refs/remotes/origin/HEAD", "HEAD") if head in listed]
        default = next((head for head in heads if head.startswith("refs/")), "HEAD" if "HEAD" in listed else None)
        # A local checkout's branch is preferably the one that it fetched from its origin.
        refs = [f"refs/remotes/origin/{branch}"] if self._is_local else []
        source = next((each for each in (*refs, f"refs/heads/{branch}") if each in listed), None)
        if source is None:
            with suppress(GitError):
                await self.git.read(self.git_dir, "update-ref", "-d", ref)
        wanted = [f"+{source}:{ref}"] if source else []
        wanted += [f"+{default}:{_DEFAULT}"] if default else []
        if wanted:
            await self._bring(*wanted)
        if len(list((self.git_dir / "objects/pack").glob("*.pack"))) > _MOST_PACKS:
            with suppress(GitError):
                await self.git.read(self.git_dir, *_PROMISOR, "repack", "-a", "-d", "--quiet")
        name = default.removeprefix("refs/heads/").removeprefix("refs/remotes/origin/") if default else ""
        (self.git_dir / "default-branch").write_text(name, encoding="utf-8")
        return name

    async def bring(self, commits: Collection[str], pull: int | None = None) -> bool:
        """Fetch commits whose branch is gone, as ids or as the head of a pull request; return whether they are here."""
        missing = [each for each in commits if _COMMIT.fullmatch(each) and await self._commit(each) is None]
        if not missing and pull is None:
            return True
        async with self._alone():
            with suppress(GitError):  # Some servers refuse commits that are on no branch.
                if missing:
                    await self._bring(*missing)
                    return True
            listed = await self._listed("refs/pull/*/head", "refs/merge-requests/*/head")
            numbered = {f"refs/pull/{pull}/head", f"refs/merge-requests/{pull}/head"}
            refs = [ref for ref, commit in listed.items() if commit in missing or ref in numbered]
            if refs:
                await self._bring(*refs[:1])
        return bool(refs)

    async def pull_head(self, number: int) -> str | None:
        """The commit of a pull or merge request."""
        listed = await self._listed(f"refs/pull/{number}/head", f"refs/merge-requests/{number}/head")
        commit = next(iter(listed.values()), None)
        return commit if commit and await self.bring([commit], number) else None

    async def pin(self, run_id: str, turn: int, commit: str) -> None:
        """Keep a turn's commit, even if its branch is deleted or rewritten."""
        if (await self.pinned(run_id)).get(turn) != commit:
            async with self._alone():
                await self.git.read(self.git_dir, "update-ref", f"{_pins(run_id)}{turn}", commit)

    async def pinned(self, run_id: str) -> dict[int, str]:
        """The commits of a run's turns that were kept."""
        form = "--format=%(objectname) %(refname:lstrip=3)"
        listed = await self.git.read(self.git_dir, "for-each-ref", form, _pins(run_id))
        pairs = (line.split() for line in listed.decode().splitlines())
        return {int(number): commit for commit, number in pairs if number.isdecimal()}

    async def commits(self, head: str, without: str | None) -> list[Commit]:
        """The commits of a branch, oldest first, without those that another one has; at most the last 2,000."""
        arguments = ["log", "-z", f"--format={_FIELDS}", "--no-show-signature", f"--max-count={_MOST_COMMITS}", head]
        out = await self.git.read(self.git_dir, *arguments, *([f"^{without}"] if without else []), "--")
        fields = out.decode(errors="replace").split("\0")
        commits = []
        for begin in range(0, len(fields) - 4, 5):
            commit, parents, made, subject, marks = fields[begin : begin + 5]
            at = datetime.fromtimestamp(int(made), UTC)
            turns = tuple(filter(None, marks.split(",")))
            commits.append(Commit(commit, tuple(parents.split()), at, subject, turns))
        return commits[::-1]

    async def merge_base(self, one: str, other: str) -> str | None:
        """The last commit that both have in common."""
        try:
            return (await self.git.read(self.git_dir, "merge-base", one, other, "--")).decode().split()[0]
        except (GitError, IndexError):
            return None

    async def change(self, base: str | None, head: str, base_name: str) -> Change:
        """The difference between two commits, for `git apply`.

        Raises:
            GitError: It cannot be read, or its contents cannot be fetched.
        """
        ends = (base or EMPTY_TREE, head)
        # The contents of both sides at once: git would fetch them one by one, or not at all.
        listed = await self.git.read(self.git_dir, "diff", "--raw", "-z", "--no-abbrev", "--no-renames", *ends, "--")
        ids: dict[bytes, None] = {}
        for old_mode, new_mode, old, new in _BLOB.findall(listed):
            sides = ((old_mode, old), (new_mode, new))
            ids |= {each: None for mode, each in sides if each.strip(b"0") and mode != SUBMODULE_MODE.encode()}
        await self._bring_contents(ids)
        form = ("-p", "--binary", "--full-index", "--src-prefix=a/", "--dst-prefix=b/")
        note = ""
        try:
            patch = await self.git.read(self.git_dir, "diff", *_DIFF, *form, *ends, "--", most=_MOST_PATCH)
        except TooLargeError as error:
            patch = error.data
            note = f"The change is larger than {_MOST_PATCH >> 20} MB: this is its beginning."
        files = await asyncio.to_thread(Patch(patch).changed_files)
        return Change(base, head, base_name, files, patch, note=note, is_whole=not note)

    async def file(self, commit: str, path: str) -> Change:
        """A whole file as of a commit, as a change of none of its lines.

        Raises:
            GitError: It has none of this name, it is not text, or it cannot be fetched.
        """
        name, output = safe_text(path, limit=200), b""
        if path.isprintable() and path:  # A patch cannot contain such a name.
            with suppress(GitError):
                output = await self.git.read(self.git_dir, "rev-parse", "--verify", "--quiet", f"{commit}:{path}")
        if not output:
            raise GitError(f"Commit {commit[:10]} has no file {name}.")
        blob = output.decode().strip()
        await self._bring_contents([output.strip()])
        text = await self.blob(blob)
        if b"\0" in text:
            raise GitError(f"{name} is a binary file.")
        lines = text.removesuffix(b"\n").split(b"\n")
        head = f"--- a/{path}\n+++ b/{path}\n@@ -1,{len(lines)} +1,{len(lines)} @@\n".encode()
        file = ChangedFile(path, "modified", old_blob=blob, new_blob=blob)
        patch = head + b"".join(b" %b\n" % line for line in lines)
        return Change(None, commit, "", (file,), patch, note="Not changed by this run.")

    async def blob(self, blob: str, most: int = 8 << 20) -> bytes:
        """The content of a blob, which was fetched with the change that names it.

        Raises:
            GitError: It is not here, or too large.
        """
        if not _COMMIT.fullmatch(blob):
            raise GitError("This is not the id of a file's content.")
        return await self.git.read(self.git_dir, "cat-file", "blob", blob, most=most)

    async def _bring_contents(self, ids: Collection[bytes]) -> None:
        check = ("cat-file", "--batch-check=%(objectname)")
        held = await self.git.read(self.git_dir, *check, given=b"".join(each + b"\n" for each in ids))
        missing = [line.split()[0] for line in held.splitlines() if line.endswith(b" missing")]
        if missing:
            async with self._alone():
                await self._bring(given=b"".join(each + b"\n" for each in missing))

    async def _bring(self, *refs: str, given: bytes = b"") -> None:
        """Fetch these refs, or the objects whose ids are given line by line."""
        quietly = ("--progress", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--filter=blob:none")
        options = (*_PROMISOR, *(("-c", "fetch.negotiationAlgorithm=noop") if given else ()))
        wanted = ("--stdin", "--", "origin") if given else ("--", "origin", *refs)
        await self.git.fetch(self.git_dir, *options, "fetch", *quietly, *wanted, given=given)

    async def _listed(self, *patterns: str) -> dict[str, str]:
        """Refs with their commits, and `HEAD` with the name of its branch, if git gives it."""
        out = await self.git.fetch(self.git_dir, "ls-remote", "--symref", "--", "origin", *patterns)
        listed: dict[str, str] = {}
        for line in out.decode(errors="replace").splitlines():
            value, _, ref = line.partition("\t")
            listed.setdefault(ref, value.removeprefix("ref: "))
        return listed

    async def _commit(self, name: str) -> str | None:
        with suppress(GitError):
            output = await self.git.read(self.git_dir, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", "--")
            return output.decode().split()[0]
        return None

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        """Keep other processes from changing the mirror, and remove the lock files of one that was killed."""
        folder = self._lock_file.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._lock_file.open("a") as lock:
                while True:
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        await asyncio.sleep(0.05)
                os.utime(self._lock_file)
                for stale in (*self.git_dir.glob("*.lock"), *self.git_dir.glob("refs/**/*.lock")):
                    stale.unlink(missing_ok=True)
                yield
        except OSError as error:
            message = f"The copy of the repository cannot be kept in {safe_text(str(folder))}: {error.strerror}."
            raise GitError(message) from error


def trim(folder: Path, most_bytes: int) -> list[Path]:
    """Delete the mirrors that were used least recently until the others fit; those used within the hour stay."""
    locks = sorted(folder.glob("*.lock"), key=lambda file: file.stat().st_mtime)
    sizes = dict.fromkeys(locks, 0)
    for lock in locks:
        for path, _, files in os.walk(lock.with_suffix(".git")):
            for name in files:
                with suppress(OSError):
                    sizes[lock] += (Path(path) / name).lstat().st_size
    dropped = []
    for lock in locks:
        if sum(sizes.values()) <= most_bytes or time.time() - lock.stat().st_mtime < _UNTOUCHED_S:
            break
        with lock.open("a") as held, suppress(BlockingIOError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.with_suffix(".git"), ignore_errors=True)
            dropped.append(lock.with_suffix(".git"))
            sizes[lock] = 0
    return dropped


def _pins(run_id: str) -> str:
    # A run's id is the service's text: it may be no name for a ref.
    return f"refs/runwarden/{sha256(run_id.encode()).hexdigest()[:24]}/"
