"""A run's results from the repository itself: its commits and their turns, its change and its review.

A mirror is one bare copy of each repository address, without its files' contents until a change is read.
"""

import asyncio
import fcntl
import math
import os
import re
import shutil
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from app.engine.text import safe_text
from app.profiles import RepositoryAddress
from app.profiles.load import address_of
from app.results.diff import Patch
from app.results.git import Git, GitError, TooLargeError
from app.results.service import pull_number
from storage.records import Repository, RunDetail
from storage.records.results import SUBMODULE_MODE, Change, ChangedFile, Turn

TRAILER: Final = "Runwarden-Run"
EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_DEFAULT: Final = "refs/fetched/default"
_NOT_A_BRANCH: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/\.|\.lock(/|$)|^[/.]|[/.]$|^$")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_MAX_COMMITS: Final = 2_000
_MAX_PATCH: Final = 64 << 20
MAX_FILE: Final = 8 << 20
"""Bytes of a file that is shown."""
_MAX_PACKS: Final = 50
"""Each fetch leaves one, and each makes every later reading a little slower."""
_UNTOUCHED_S: Final = 3_600.0
_DIFF: Final = ("--no-ext-diff", "--no-textconv", "--no-color", "-M", "--ignore-submodules=none")
_FIELDS: Final = "%H%x00%P%x00%ct%x00%s%x00%(trailers:key=" + TRAILER + ",valueonly,separator=%x2C)"
_PROMISOR: Final = ("-c", "remote.origin.promisor=true", "-c", "remote.origin.partialclonefilter=blob:none")
"""Given to `git fetch` alone: a reading command with it would fail at a missing content, or fetch it."""
_BLOB: Final = re.compile(rb":(\d{6}) (\d{6}) ([0-9a-f]+) ([0-9a-f]+) ")
BY_TIME: Final = "Commits are assigned to turns by time: they carry no mark of this run."


class Commit(Struct, frozen=True):
    """A commit of a branch."""

    id: str
    parents: tuple[str, ...]
    at: datetime
    """The author's time of the commit, in whole seconds."""
    subject: str
    marks: tuple[str, ...]
    """The turns that the commit's trailers name, see `TRAILER`."""


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
                listed = await self._list_refs("HEAD", f"refs/heads/{branch}", f"refs/remotes/origin/{branch}")
                # The default branch of a checkout is that of its origin: its own HEAD is the checked-out branch.
                heads = [listed[head] for head in ("refs/remotes/origin/HEAD", "HEAD") if head in listed]
                default = next(
                    (head for head in heads if head.startswith("refs/")), "HEAD" if "HEAD" in listed else None
                )
                # A local checkout's branch is preferably the one that it fetched from its origin.
                refs = [f"refs/remotes/origin/{branch}"] if self.address.startswith("/") else []
                source = next((ref for ref in (*refs, f"refs/heads/{branch}") if ref in listed), None)
                if source is None:
                    with suppress(GitError):
                        await self.git.read(self.git_dir, "update-ref", "-d", ref)
                refspecs = [f"+{source}:{ref}"] if source else []
                refspecs += [f"+{default}:{_DEFAULT}"] if default else []
                if refspecs:
                    await self._bring(*refspecs)
                if len(list((self.git_dir / "objects/pack").glob("*.pack"))) > _MAX_PACKS:
                    with suppress(GitError):
                        await self.git.read(self.git_dir, *_PROMISOR, "repack", "-a", "-d", "--quiet")
                name = ""
                if default:
                    name = default.removeprefix("refs/heads/").removeprefix("refs/remotes/origin/")
                (self.git_dir / "default-branch").write_text(name, encoding="utf-8")
                problem = ""
            except GitError as error:
                if await self._commit(_DEFAULT) is None:
                    raise
                name = ""
                problem = str(error)
                with suppress(OSError):
                    name = (self.git_dir / "default-branch").read_text(encoding="utf-8")
            return Heads(await self._commit(ref), await self._commit(_DEFAULT), name, problem)

    async def bring(self, commits: Collection[str], pull: int | None = None) -> bool:
        """Fetch commits whose branch is gone, as ids or as the head of a pull request; return whether they are here."""
        missing = [commit for commit in commits if _COMMIT.fullmatch(commit) and await self._commit(commit) is None]
        if not missing and pull is None:
            return True
        async with self._alone():
            with suppress(GitError):  # Some servers refuse commits that are on no branch.
                if missing:
                    await self._bring(*missing)
                    return True
            listed = await self._list_refs("refs/pull/*/head", "refs/merge-requests/*/head")
            numbered = {f"refs/pull/{pull}/head", f"refs/merge-requests/{pull}/head"}
            refs = [ref for ref, commit in listed.items() if commit in missing or ref in numbered]
            if refs:
                await self._bring(*refs[:1])
        return bool(refs)

    async def pull_head(self, number: int) -> str | None:
        """The commit of a pull or merge request."""
        refs = await self._list_refs(f"refs/pull/{number}/head", f"refs/merge-requests/{number}/head")
        commit = next(iter(refs.values()), None)
        return commit if commit and await self.bring([commit], number) else None

    async def pin(self, run_id: str, turn: int, commit: str) -> None:
        """Keep a turn's commit, even if its branch is deleted or rewritten."""
        if (await self.pinned_commits(run_id)).get(turn) != commit:
            async with self._alone():
                await self.git.read(self.git_dir, "update-ref", f"{_pins(run_id)}{turn}", commit)

    async def pinned_commits(self, run_id: str) -> dict[int, str]:
        """The commits of a run's turns that were kept."""
        form = "--format=%(objectname) %(refname:lstrip=3)"
        output = await self.git.read(self.git_dir, "for-each-ref", form, _pins(run_id))
        pairs = (line.split() for line in output.decode().splitlines())
        return {int(number): commit for commit, number in pairs if number.isdecimal()}

    async def commits(self, head: str, without: str | None) -> list[Commit]:
        """The commits of a branch, oldest first, without those that another one has; at most the last 2,000."""
        arguments = ["log", "-z", f"--format={_FIELDS}", "--no-show-signature", f"--max-count={_MAX_COMMITS}", head]
        out = await self.git.read(self.git_dir, *arguments, *([f"^{without}"] if without else []), "--")
        fields = out.decode(errors="replace").split("\0")
        commits = []
        for commit, parents, committed, subject, marks in zip(*[iter(fields)] * 5, strict=False):
            at = datetime.fromtimestamp(int(committed), UTC)
            turns = tuple(filter(None, marks.split(",")))
            commits.append(Commit(commit, tuple(parents.split()), at, subject, turns))
        return commits[::-1]

    async def merge_base(self, head: str, other: str) -> str | None:
        """The last commit that both have in common."""
        try:
            return (await self.git.read(self.git_dir, "merge-base", head, other, "--")).decode().split()[0]
        except (GitError, IndexError):
            return None

    async def change(self, base: str | None, head: str, base_name: str) -> Change:
        """The difference between two commits, for `git apply`.

        Raises:
            GitError: It cannot be read, or its contents cannot be fetched.
        """
        ends = (base or EMPTY_TREE, head)
        # The contents of both sides at once: git would fetch them one by one, or not at all.
        output = await self.git.read(self.git_dir, "diff", "--raw", "-z", "--no-abbrev", "--no-renames", *ends, "--")
        ids: dict[bytes, None] = {}
        for old_mode, new_mode, old, new in _BLOB.findall(output):
            sides = ((old_mode, old), (new_mode, new))
            ids |= {blob: None for mode, blob in sides if blob.strip(b"0") and mode != SUBMODULE_MODE.encode()}
        await self._bring_contents(ids)
        form = ("-p", "--binary", "--full-index", "--src-prefix=a/", "--dst-prefix=b/")
        note = ""
        try:
            patch = await self.git.read(self.git_dir, "diff", *_DIFF, *form, *ends, "--", max_bytes=_MAX_PATCH)
        except TooLargeError as error:
            patch = error.data
            note = f"The change is larger than {_MAX_PATCH >> 20} MB: this is its beginning."
        files = await asyncio.to_thread(Patch(patch).changed_files)
        return Change(base, head, base_name, files, patch, note=note, is_whole=not note)

    async def file(self, commit: str, path: str) -> Change:
        """A whole file as of a commit, in the form of a patch without changed lines.

        Raises:
            GitError: It has none of this name, it is not text, or it cannot be fetched.
        """
        name = safe_text(path, limit=200)
        # A patch can contain no other names.
        blob = await self._id(f"{commit}:{path}") if path.isprintable() and path else None
        if blob is None:
            raise GitError(f"Commit {commit[:10]} has no file {name}.")
        await self._bring_contents([blob.encode()])
        text = await self.blob(blob, MAX_FILE)
        if b"\0" in text:
            raise GitError(f"{name} is a binary file.")
        lines = text.removesuffix(b"\n").split(b"\n")
        head = f"--- a/{path}\n+++ b/{path}\n@@ -1,{len(lines)} +1,{len(lines)} @@\n".encode()
        file = ChangedFile(path, "modified", old_blob=blob, new_blob=blob)
        patch = head + b"".join(b" %b\n" % line for line in lines)
        return Change(None, commit, "", (file,), patch, note="Not changed by this run.")

    async def blob(self, blob: str, max_bytes: int) -> bytes:
        """The content of a blob, which was fetched with the change that names it.

        Raises:
            GitError: It is not here, or too large.
        """
        if not _COMMIT.fullmatch(blob):
            raise GitError("This is not the id of a file's content.")
        return await self.git.read(self.git_dir, "cat-file", "blob", blob, max_bytes=max_bytes)

    async def _bring_contents(self, ids: Collection[bytes]) -> None:
        check = ("cat-file", "--batch-check=%(objectname)")
        output = await self.git.read(self.git_dir, *check, stdin=b"".join(object_id + b"\n" for object_id in ids))
        missing = [line.split()[0] for line in output.splitlines() if line.endswith(b" missing")]
        if missing:
            async with self._alone():
                await self._bring(object_ids=b"".join(object_id + b"\n" for object_id in missing))

    async def _bring(self, *refs: str, object_ids: bytes = b"") -> None:
        """Fetch these refs, or the objects whose ids are given line by line."""
        quietly = ("--progress", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--filter=blob:none")
        options = (*_PROMISOR, *(("-c", "fetch.negotiationAlgorithm=noop") if object_ids else ()))
        arguments = ("--stdin", "--", "origin") if object_ids else ("--", "origin", *refs)
        await self.git.fetch(self.git_dir, *options, "fetch", *quietly, *arguments, stdin=object_ids)

    async def _list_refs(self, *patterns: str) -> dict[str, str]:
        """Refs with their commits, and `HEAD` with the name of its branch, if git gives it."""
        out = await self.git.fetch(self.git_dir, "ls-remote", "--symref", "--", "origin", *patterns)
        refs: dict[str, str] = {}
        for line in out.decode(errors="replace").splitlines():
            value, _, ref = line.partition("\t")
            refs.setdefault(ref, value.removeprefix("ref: "))
        return refs

    async def _commit(self, name: str) -> str | None:
        return await self._id(f"{name}^{{commit}}")

    async def _id(self, name: str) -> str | None:
        with suppress(GitError):
            output = await self.git.read(self.git_dir, "rev-parse", "--verify", "--quiet", name, "--")
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


def trim(folder: Path, most_bytes: int) -> None:
    """Delete the mirrors that were used least recently until the others fit; those used within the hour stay."""
    locks = sorted(folder.glob("*.lock"), key=lambda file: file.stat().st_mtime)
    sizes = dict.fromkeys(locks, 0)
    for lock in locks:
        for path, _, files in os.walk(lock.with_suffix(".git")):
            for name in files:
                with suppress(OSError):
                    sizes[lock] += (Path(path) / name).lstat().st_size
    for lock in locks:
        if sum(sizes.values()) <= most_bytes or time.time() - lock.stat().st_mtime < _UNTOUCHED_S:
            break
        with lock.open("a") as file, suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.with_suffix(".git"), ignore_errors=True)
            sizes[lock] = 0


def _pins(run_id: str) -> str:
    # The service chooses a run's id, which may be invalid in a ref name.
    return f"refs/runwarden/{sha256(run_id.encode()).hexdigest()[:24]}/"


class TurnCommits(Struct, frozen=True):
    """A turn with its commits, oldest first."""

    turn: Turn
    commits: tuple[Commit, ...]


def observed_turns(detail: RunDetail) -> list[Turn]:
    """The turns of a run as they were seen from here: when each began and ended, and how."""
    run = detail.run
    finals = detail.final_statuses
    moves: list[tuple[str, datetime | None]] = [(move.new, move.at) for move in detail.transitions]
    moves = moves or [(run.status, run.updated_at)]
    turns: list[Turn] = []
    is_open = False
    for status, at in moves:
        if not is_open:
            begun = at if turns or status not in finals else run.created_at
            turns.append(Turn(len(turns) + 1, status, started_at=begun or at))
        is_open = status not in finals
        ended_at = None if is_open else at
        turns[-1] = replace(turns[-1], state=status, ended_at=ended_at, outcome=None if is_open else status)
    if turns[0].started_at is not None and run.created_at is not None:
        turns[0] = replace(turns[0], started_at=min(run.created_at, turns[0].started_at))
    return turns


def of_commits(detail: RunDetail, commits: Sequence[Commit]) -> tuple[list[TurnCommits], str]:
    """The turns of a run with their commits, and a remark on how these were found."""
    seen = observed_turns(detail)
    marked: dict[int, list[Commit]] = {}
    for commit in commits:
        for mark in commit.marks:
            name, _, number = mark.strip().rpartition(" turn ")
            if name == detail.run.run_id and number.isdecimal() and len(number) < len("1000000"):
                marked.setdefault(int(number), []).append(commit)
    if marked:
        last = max(*marked, len(seen))
        turns = [*seen, *(Turn(number, "completed") for number in range(len(seen) + 1, last + 1))]
        return [with_commits(turn, tuple(marked.get(turn.number, ()))) for turn in turns], ""
    # Commits made between the start of a turn and the start of the next; commit times are whole seconds.
    starts = [None if turn.started_at is None else turn.started_at.replace(microsecond=0) for turn in seen]
    results = []
    for turn, begin, end in zip(seen, starts, (*starts[1:], None), strict=True):
        until = (commit for commit in commits if end is None or commit.at < end)
        commits_since = () if begin is None else tuple(commit for commit in until if commit.at >= begin)
        results.append(with_commits(turn, commits_since))
    return results, BY_TIME if any(result.commits for result in results) else ""


def with_commits(turn: Turn, commits: tuple[Commit, ...]) -> TurnCommits:
    """The turn that created these commits, oldest first."""
    if not commits:
        return TurnCommits(turn, ())
    last = commits[-1]
    return TurnCommits(replace(turn, commit=last.id, summary=turn.summary or last.subject), commits)


_REMEMBERED: Final = 50
"""Runs whose repositories were asked lately."""


class NoTurnError(GitError):
    """The run has no such turn."""


class CommitHistory(Struct, frozen=True):
    """A run's commits, as its repository has them."""

    mirror: Mirror
    head: str
    base: str | None
    base_name: str
    turns: tuple[TurnCommits, ...]
    note: str
    """A remark on where the commits come from and how they were found."""

    async def change(self, turn: int | None = None) -> Change:
        """The change of a turn, or of the whole run.

        Raises:
            GitError: The turn has no commit, or its change cannot be read.
        """
        base = self.base
        head = self.head
        name = self.base_name
        if turn is not None:
            commits_of = {entry.turn.number: entry.commits for entry in self.turns}
            if turn not in commits_of:
                raise NoTurnError(f"The run has no turn {turn} in git; it has {len(commits_of)}.")
            commits = commits_of[turn]
            if not commits:
                raise GitError(f"Turn {turn} has no commit: it changed nothing, or nothing of it was pushed yet.")
            base = next(iter(commits[0].parents), None)
            head = commits[-1].id
            name = "its first parent" if len(commits) == 1 else f"the first parent of its {len(commits)} commits"
            name = name if base else "nothing: it is the first commit"
        change = await self.mirror.change(base, head, name)
        return replace(change, note=" ".join(filter(None, (self.note, change.note))))


@dataclass(slots=True)
class RunRepositories:
    """The repositories of the runs of one configuration."""

    folder: Path
    addresses: tuple[RepositoryAddress, ...]
    git: Git
    most_mb: int = 2_000
    fresh_s: float = 20.0
    """A repository is asked about an unchanged run again only after this time."""
    _asked: dict[str, tuple[float, datetime | None, Heads]] = field(default_factory=dict)
    """When a run's repository was asked last, in monotonic seconds, the run's last change then, and the answer."""

    def mirror(self, repository: Repository) -> Mirror:
        """The mirror of a repository.

        Raises:
            GitError: No address is configured for it, or none can be made of its name.
        """
        try:
            address = address_of(self.addresses, repository)
        except ValueError as error:
            raise GitError(safe_text(str(error))) from error
        if address is None:
            label = safe_text(repository.label)
            raise GitError(f'Nothing says where {label} is: add it under [repositories], as in "{label}" = "ADDRESS".')
        return Mirror(self.folder, address, self.git)

    def address(self, repository: Repository) -> str | None:
        """The address of a repository; None: not known."""
        with suppress(GitError):
            return self.mirror(repository).address
        return None

    async def history(self, detail: RunDetail, service_commits: Mapping[int, str] | None = None) -> CommitHistory:
        """Fetch a run's commits, and keep those of its turns; `service_commits`: the commits that the service names.

        Raises:
            GitError: Its repository is not available, or holds nothing of the run.
        """
        run = detail.run
        mirror = self.mirror(run.repository)
        asked_s, updated_at, heads = self._asked.get(run.run_id, (-math.inf, None, Heads(None, None, "")))
        is_same = not heads.problem and updated_at == run.updated_at
        if not is_same or time.monotonic() - asked_s >= self.fresh_s:
            heads = await mirror.update(run.branch_name)
            lately = dict(list(self._asked.items())[-_REMEMBERED:])
            self._asked = {**lately, run.run_id: (time.monotonic(), run.updated_at, heads)}
            await asyncio.to_thread(trim, self.folder, self.most_mb << 20)
        pinned = await mirror.pinned_commits(run.run_id)
        head, note = await self._head(detail, mirror, heads, {**(service_commits or {}), **pinned})
        base, name, commits = await _base(detail, mirror, heads, head)
        turns, remark = of_commits(detail, commits)
        with_own = {entry.turn.number for entry in turns if entry.commits}
        commit_of = {number: commit for number, commit in pinned.items() if number not in with_own}
        commit_of |= dict(service_commits or {}) if remark or not with_own else {}
        by_id = {commit.id: commit for commit in commits}
        missing = {commit_of[entry.turn.number] for entry in turns if entry.turn.number in commit_of} - by_id.keys()
        if missing and await mirror.bring(missing):
            for commit in missing:
                by_id[commit] = (await mirror.commits(commit, None))[-1]
        if any(commit_of.get(entry.turn.number) in missing for entry in turns):
            remark = "The branch was rewritten: some commits are those that were kept."
        elif not with_own - commit_of.keys():
            remark = ""
        # A turn's commit as known from elsewhere replaces those found on the branch.
        owns = [by_id.get(commit_of.get(entry.turn.number, "")) for entry in turns]
        turns = [with_commits(entry.turn, (own,)) if own else entry for entry, own in zip(turns, owns, strict=True)]
        for entry in turns:
            if entry.turn.commit:
                await mirror.pin(run.run_id, entry.turn.number, entry.turn.commit)
        stale = f"This was fetched before: {heads.problem}" if heads.problem else ""
        return CommitHistory(mirror, head, base, name, tuple(turns), " ".join(filter(None, (stale, note, remark))))

    async def _head(self, detail: RunDetail, mirror: Mirror, heads: Heads, known: Mapping[int, str]) -> tuple[str, str]:
        """The run's last commit, and a remark if that is not its branch's."""
        if heads.branch:
            return heads.branch, ""
        branch = safe_text(detail.run.branch_name)
        last = known.get(max(known, default=0))
        if last and await mirror.bring([last]):
            return last, f"The branch {branch} is gone: these are its known commits."
        number = pull_number(detail.run.raw_json)
        if number and (commit := await mirror.pull_head(number)):
            return commit, f"The branch {branch} is gone: this is pull request {number}."
        if not detail.is_final:
            raise GitError(f"The repository has no branch {branch} yet: the run has pushed nothing.")
        raise GitError(f"The repository has no branch {branch}, and nothing of it was kept.")


async def _base(detail: RunDetail, mirror: Mirror, heads: Heads, head: str) -> tuple[str | None, str, Sequence[Commit]]:
    """The beginning of a run's change, how it was chosen, and the commits since."""
    if heads.default and heads.default != head:
        base = await mirror.merge_base(heads.default, head)
        if base != head:
            commits = await mirror.commits(head, heads.default)
            return base, f"merge base with {heads.default_name}" if base else "nothing: it shares no history", commits
    # The branch is merged, or is the default branch: the marks and times of commits show which are the run's.
    commits = await mirror.commits(head, None)
    run_commits = [commit for entry in of_commits(detail, commits)[0] for commit in entry.commits]
    if not run_commits:
        return head, f"its own head: nothing was added to {heads.default_name or 'the branch'}", ()
    base = next(iter(run_commits[0].parents), None)
    return base, "the parent of its first commit, as its branch is merged" if base else "nothing", run_commits
