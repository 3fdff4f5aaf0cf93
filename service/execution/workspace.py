"""Workspaces: the folders of one attempt at a turn, removed when the attempt ends or its worker dies."""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from service import trees
from service.execution import large_files, processes, submodules
from service.execution.commits import (
    LINK,
    AgentHistory,
    ChangedFiles,
    TurnCommit,
    auto_merge,
    changed_between,
    commit_tree,
    head_of,
    history_of,
)
from service.execution.mirror import RepositorySnapshot, borrow, lies_in, limit
from service.findings import collect
from service.git import GitCommandError, GitRunner
from service.settings import DataFolder
from service.text import one_line, plural, storable, table

_PIECE = 1 << 20
_LARGEST_RESULT = 256 * 1024
_LONGEST_SUMMARY = 4000
_LONGEST_MESSAGE = 20_000
_MOST_NAMED = 5
_LONGEST_NAME = 200
_LONGEST_PART = 255
"""How many bytes a file's name can have on Linux."""
_MOST_KEPT_COMMITS = 50
_MOST_OUTSIDE = 1000
_SOME_NOT_ADDED = 1
"""The exit status of `git add --ignore-errors` that could store some files only."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Result:
    """The agent's report on its work."""

    summary: str | None = None
    commit_message: str | None = None


def instructions_of(task: Mapping[str, Any]) -> str:
    """Return a task's instructions, after the sentence about an earlier turn's unpushed changes, if there is one."""
    begun = task.get("starting_point")
    return f"{begun['text']}\n\n{task['instructions']}" if begun else str(task["instructions"])


class Workspace:
    """The folders of one attempt: the checkout, the history to read, a home, and one for the result."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = root / "tree"
        """The checkout: only changes in it are committed."""
        self.history = root / "history.git"
        """A git-dir for the agent; the service uses nothing in it after the agent has exited."""
        self.home = root / "home"
        self.git_home = root / "git-home"
        """The home folder of the service's git, so that it finds no `.netrc` from the agent."""
        self.temporary = root / "scratch" / "tmp"
        self.shared = root / "scratch" / "shm"
        """The agent's /dev/shm; `temporary` is its /tmp. Both are on the disk, so that one limit covers all files."""
        self.result_file = root / "result" / "result.json"
        self.task_file = root / "task.json"
        self.instructions_file = root / "instructions.txt"
        self.conversation_file = root / "conversation.json"
        self.filter_file = root / "seccomp.bpf"
        self.resolver_file = root / "resolv.conf"
        self.hosts_file = root / "hosts"
        self.sockets = root / "sockets"
        """The folder of the proxies' sockets, if the agent has any."""
        self._nothing = root / "nothing"
        self.sealed = self._nothing / "sealed"
        """Mounted over folders that a program must not write to."""
        self.left_behind: tuple[str, ...] = ()
        """Patterns of files that the agent's program writes for itself, which are never committed."""
        self.begun_with: frozenset[str] = frozenset()
        """The files of the kept patch that the checkout was begun with."""
        self.remarks: list[str] = []
        """Lines for the turn's log."""
        self._has_attributes = False
        """Whether the checkout has a file `.gitattributes`."""
        self.part: tuple[str, ...] | None = None
        """The paths that a partial mirror's checkout has, empty for all; None: the mirror has all contents."""
        self._outside: list[str] = []
        """Files of the agent outside of the paths."""
        self._prepared: dict[str, bytes] | None = None
        """The digests of files as the repository's set-up left them; None: it has none."""
        self.large_files: large_files.LargeFiles | None = None
        """The repository's files in Git LFS, if it is set up to have any."""
        self.submodules: submodules.Submodules | None = None
        """The repository's submodules, if it is set up to have any."""
        self.url = ""
        """The repository's address, from which those of its submodules follow."""
        self._index = root / "index"
        """The git index of the new checkout, which the agent cannot change."""
        self._plain: str | None = None
        """The commit that is checked out, if the checkout is whole and without submodules."""
        self._theirs = root / "theirs.git"
        self.ours = root / "commit.git"
        """The service's git-dir, made after the agent has exited, so that the agent cannot have changed it."""

    def create(self) -> None:
        """Make the folders."""
        folders = (self.tree, self.home, self.git_home, self.temporary, self.shared, self.result_file.parent)
        for folder in (*folders, self._nothing / "folder", self.sealed):
            folder.mkdir(mode=0o700, parents=True)
        # Some programs keep this file there, and would fail to create it.
        (self.sealed / ".gitignore").touch()

    def give(self, task: Mapping[str, Any]) -> None:
        """Write the task down."""
        self.task_file.write_text(json.dumps(task), "utf-8")
        self.conversation_file.write_text(json.dumps(task["conversation"], indent=1), "utf-8")
        self.instructions_file.write_bytes(f"{instructions_of(task)}\n".encode("utf-8", "replace"))

    def nothing_like(self, name: str) -> Path:
        """Return an empty file or folder to mount over one of the checkout that the agent must not read.

        Not a device, which could not be opened there: programs exit at files that they cannot read or parse.
        """
        if (self.tree / name).is_dir():
            return self._nothing / "folder"
        # `{}` is an empty object in YAML as well; some programs reject an empty file.
        empty = self._nothing / ("file.json" if name.endswith((".json", ".jsonc", ".yml", ".yaml")) else "file")
        empty.write_text("{}\n" if empty.suffix else "", "utf-8")
        return empty

    def check_out(self, git: GitRunner, snapshot: RepositorySnapshot, branch: str) -> str | None:
        """Fill the checkout from the branch, or without one from the default branch; return the commit, if any."""
        base = snapshot.branches.get(branch) or snapshot.branches.get(snapshot.default_branch or "")
        filled: list[str] = []
        refs = {f"refs/remotes/origin/{name}": sha for name, sha in snapshot.branches.items()}
        refs |= {f"refs/heads/{branch}": base} if base else {}
        borrow(self.history, snapshot.git_dir, branch=branch, refs=refs)
        if self.part is not None:
            limit(self.history, self.part)
            # The files that decide on Git LFS may lie outside.
            self._has_attributes = bool(self.part)
        if base:
            git("read-tree", "--reset", "-u", "HEAD", git_dir=self.history, work_tree=self.tree)
            # With its time, by which git knows the files that changed right after it was written.
            shutil.copy2(self.history / "index", self._index)
            if self.part is None and not os.path.lexists(self.tree / ".gitmodules"):
                self._plain = base
            collect.clear(self.tree)
            if self.large_files is not None:
                filled = self.large_files.fill(
                    self.tree, large_files.tracked(git, self._attributes(snapshot), base), base
                )
                self.remarks.append(f"Git LFS: {plural(len(filled), 'file')}")
            if self.submodules is not None:
                self.submodules.fill(snapshot.git_dir, base, self.url, self.tree, self.root)
                self.remarks += self.submodules.remarks
            elif names := [path for path, _ in self._links(git, snapshot.git_dir, base)]:
                self.remarks.append(f"submodules are not fetched: {listed(names)}")
        # For the agent's own git: it may commit, and its final checkout becomes the turn's commit.
        (self.tree / ".git").write_text(f"gitdir: {self.history}\n", "utf-8")
        with (self.history / "config").open("a", encoding="utf-8") as config:
            config.write("[user]\n\tname = agent\n\temail = agent@runwarden.invalid\n")
            if self.large_files is not None:
                config.write(large_files.FILTER)
                (self.history / "info/attributes").write_text("* -text -ident -working-tree-encoding\n")
        if filled:
            # Otherwise they would look changed to the agent.
            given = "".join(f"{name}\0" for name in filled)
            git.feed(given, "update-index", "-z", "--stdin", git_dir=self.history, work_tree=self.tree)
        return base

    def _attributes(self, snapshot: RepositorySnapshot) -> Path:
        """Make a git-dir that obeys the attributes of the repository; nothing is checked out with it."""
        folder = self.root / "attributes.git"
        trees.remove(folder)
        borrow(folder, snapshot.git_dir, *([self.ours] if self.ours.exists() else []))
        (folder / "info/attributes").unlink()
        return folder

    def note_prepared(self, since_ns: int) -> None:
        """Note the files that the set-up, which began at `since_ns`, left in the checkout: they are not committed."""
        collect.clear(self.tree)
        self._prepared = {}
        for path, _, entries in trees.walk(self.tree):
            for entry in entries:
                with contextlib.suppress(OSError):
                    found, name = entry.stat(follow_symlinks=False), f"{path}{entry.name}"
                    if not stat.S_ISDIR(found.st_mode):
                        # Older ones are as the turn began with them.
                        is_older = found.st_ctime_ns < since_ns
                        self._prepared[name] = b"" if is_older else self._digest(name) or b""

    def _digest(self, name: str) -> bytes | None:
        """Return a digest of a file's type, rights and content; None: there is no such file."""
        try:
            mode = (self.tree / name).lstat().st_mode
        except OSError:
            return None
        digest = hashlib.sha256(oct(mode).encode())
        if not stat.S_ISDIR(mode):
            for piece in self.contents([name]):
                digest.update(piece)
        return digest.digest()

    def commit(
        self,
        git: GitRunner,
        snapshot: RepositorySnapshot,
        base: str | None,
        message: str,
        keep: Callable[[str], str] | None = None,
    ) -> TurnCommit | None:
        """Commit the changes in the checkout on top of its base and of the agent's merges; None: there are none.

        `keep`: keeps the agent's own commits, with the messages that this function makes of theirs.
        """
        borrow(self.ours, snapshot.git_dir)
        history = self._agent_history(git, snapshot, base)
        parents = tuple(filter(None, (base, *history.merged)))
        compared, _ = auto_merge(git, self.ours, parents)
        left_out = self._add(git, compared)
        # The contents of other files need not be here.
        tree = git("write-tree", "--missing-ok", git_dir=self.ours)
        files = changed_between(git, self.ours, compared, tree)
        fault = f"the agent left files that git cannot store: {listed(left_out)}" if left_out else None
        pointers, outsized = self._pointers(git, snapshot, tree, files.names)
        if outsized:
            what = f"the agent changed files that the repository keeps in Git LFS: {listed(outsized)}"
            fault = fault or f"{what}; allow it with lfs = true in the repository's setup"
        entries = self._submodules(git, compared, files) + pointers
        if self._prepared is not None:
            # Files that are as the set-up left them, without those of the kept patch, stay as in the base.
            for name, old in zip(files.names, files.before, strict=True):
                if name not in self.begun_with and self._prepared.get(name) == self._digest(name):
                    entries += f"{old}\t{name}\0"
        if entries:
            git.feed(entries, "update-index", "-z", "--index-info", git_dir=self.ours)
            tree = git("write-tree", "--missing-ok", git_dir=self.ours)
            files = changed_between(git, self.ours, compared, tree)
        if not files.names and fault is None and parents in {(), (base,)}:
            return None
        groups: dict[str, set[str]] = {_folded(name): set() for name in files.names}
        for name in self._names(git, "ls-files", "-z"):
            if (group := groups.get(_folded(name))) is not None:
                group.add(name)
        alike = [name for group in groups.values() if len(group) > 1 for name in sorted(group)]
        if alike:
            what = "names that are the same where case or the form of letters is ignored, as on macOS and Windows"
            self.remarks.append(f"{what}: {listed(alike)}")
        last = None
        if keep is not None and history.made:
            try:
                last, files = self._keep(git, history.made, files, keep)
            except GitCommandError as error:
                self.remarks.append(f"the agent's commits become one: {error}")
        if last is None:
            sha = commit_tree(git, self.ours, tree, parents, message)
        elif git("rev-parse", f"{last}^{{tree}}", git_dir=self.ours) == tree:
            sha = last
        else:
            sha = commit_tree(git, self.ours, tree, (last,), message)
        is_plain = not history.merged and (last is None or (sha == last and len(history.made) == 1))
        return TurnCommit(sha, tree, base, history.merged, is_plain, compared, files, fault)

    def _add(self, git: GitRunner, compared: str | None) -> list[str]:
        """Put the checkout into the service's index; return the files that git cannot store."""
        (self.ours / "info" / "exclude").write_text("".join(f"{one}\n" for one in self.left_behind), "utf-8")
        gone, locked = self._prepare()
        if compared is not None:
            # From the index of the checkout git knows which files are unchanged, without reading them.
            shutil.copy2(self._index, self.ours / "index")
        if compared is None or compared != self._plain:
            reading = ("--empty",) if compared is None else ("-i", "-m", compared)
            git("read-tree", *reading, git_dir=self.ours, work_tree=self.tree)
        if gone or locked:
            hidden = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
            ignored = tuple(name for name in self._names(git, *hidden) if name.endswith("/"))
            gone, locked = ([path for path in paths if not path.startswith(ignored)] for paths in (gone, locked))
        # git fails as a whole at a folder that it can list but not enter, and at a path that is nowhere.
        places = [path for path in self.part or () if os.path.lexists(self.tree / path) or self._indexed(git, path)]
        scope = [f":(top,literal){path}" for path in places] if self.part else [":/"]
        chosen = ("--", *scope, *(f":(top,exclude,literal){path}" for path in (collect.FOLDER, *locked)))
        left_out = [*gone, *locked]
        try:
            if scope:
                git("add", "--all", "--ignore-errors", *chosen, git_dir=self.ours, work_tree=self.tree)
        except GitCommandError as error:
            names = self._names(git, "ls-files", "-z", "--others", "--modified", "--exclude-standard", *chosen)
            # With any other status git has stored nothing, for a reason that no file need have.
            if error.status != _SOME_NOT_ADDED or not names:
                raise
            _logger.info("%s", error)
            left_out += names
        if self._outside and (names := self._indexed(git, *self._outside, more=("--others", "--exclude-standard"))):
            self.remarks.append(f"files outside of the repository's sparse paths are not committed: {listed(names)}")
        return left_out

    def _pointers(
        self, git: GitRunner, snapshot: RepositorySnapshot, tree: str, names: Sequence[str]
    ) -> tuple[str, list[str]]:
        """Return the index's entries of changed large files, and those that must not be committed as they are."""
        raw = large_files.tracked(git, self._attributes(snapshot), tree, names) if self._has_attributes else []
        if self.large_files is None:
            there = (name for name in raw if (self.tree / name).exists())
            return "", [name for name in there if not large_files.object_in(self.tree / name)]
        entries = ""
        for name, pointer in self.large_files.take(self.tree, raw).items():
            mode = "100755" if (self.tree / name).stat().st_mode & stat.S_IXUSR else "100644"
            blob = git.feed(pointer, "hash-object", "-w", "--stdin", git_dir=self.ours).strip()
            entries += f"{mode} {blob}\t{name}\0"
        return entries, []

    def _keep(
        self,
        git: GitRunner,
        made: Sequence[tuple[str, ...]],
        files: ChangedFiles,
        keep: Callable[[str], str],
    ) -> tuple[str | None, ChangedFiles]:
        """Make the agent's commits again; return the last, and all files that any of them touches."""
        if len(made) > _MOST_KEPT_COMMITS:
            self.remarks.append(f"the agent made more than {_MOST_KEPT_COMMITS} commits: they became one")
            return None, files
        again: dict[str, str] = {}
        own = {each[0] for each in made}
        borders = {one for each in made for one in each[1:]} - own
        wanted = "".join(f"{one}\n" for one in (*own, *(f"^{one}" for one in borders)))
        pack = git.feed(wanted, "pack-objects", "--quiet", "--revs", "--thin", "--stdout", git_dir=self._theirs)
        # With a part of the repository, git cannot check what the unchanged entries of trees lead to.
        strict = ("unpack-objects", "-q", "--strict")
        checked = ("index-pack", "--stdin", "--fix-thin", "--fsck-objects")
        git.feed(pack, *(checked if self.part else strict), git_dir=self.ours)
        names, blobs, new = dict.fromkeys(files.names), set(files.blobs), set(files.new)
        for sha, *before in made:
            message = git("log", "--max-count=1", "--format=%B", sha, "--", git_dir=self.ours)
            tree = git("rev-parse", f"{sha}^{{tree}}", git_dir=self.ours)
            parents = [again.get(one, one) for one in before]
            again[sha] = commit_tree(git, self.ours, tree, parents, keep(message))
            changed = changed_between(git, self.ours, auto_merge(git, self.ours, parents)[0], tree)
            names |= dict.fromkeys(changed.names)
            blobs |= changed.blobs
            new |= changed.new
        return again[made[-1][0]], ChangedFiles(tuple(names), files.before, frozenset(blobs), frozenset(new))

    def stored(self, git: GitRunner, blobs: Iterable[str]) -> bytes:
        """Return the contents of files in the service's git-dir."""
        listed = "".join(f"{blob}\n" for blob in blobs if blob.strip("0"))
        return git.feed(listed, "cat-file", "--batch", git_dir=self.ours).encode("utf-8", "surrogateescape")

    def _submodules(self, git: GitRunner, base: str | None, files: ChangedFiles) -> str:
        """Return the entries of submodules that only lost their empty folders; remark on work inside of others."""
        restored, lost = list[str](), list[str]()
        filled = {} if self.submodules is None else self.submodules.filled
        for path, sha in self._links(git, self.ours, base):
            folder = self.tree / path
            if path in files.names and ".gitmodules" not in files.names and not folder.exists():
                restored.append(f"{LINK} commit {sha}\t{path}\0")
            elif path not in filled and folder.is_dir() and any(folder.iterdir()):
                lost.append(path)
        lost += [] if self.submodules is None else self.submodules.changed(self.tree)
        if lost:
            self.remarks.append(f"files in submodules are not committed: {listed(lost)}")
        return "".join(restored)

    def _links(self, git: GitRunner, git_dir: Path, commit: str | None) -> list[tuple[str, str]]:
        return [] if commit == self._plain else submodules.links(git, git_dir, commit)

    def _agent_history(self, git: GitRunner, snapshot: RepositorySnapshot, base: str | None) -> AgentHistory:
        """Read the agent's history, by a git-dir of the service with the agent's objects."""
        head, objects = head_of(self.history), self.history / "objects"
        if base is None or head is None or head == base:
            return AgentHistory()
        trees.remove(self._theirs)
        borrow(self._theirs, snapshot.git_dir, self.history)
        try:
            # Links and the names of other folders would lead to objects that the agent may not read; a pipe blocks.
            for path, folder, entries in trees.walk(objects):
                for entry in entries:
                    is_plain = entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
                    if not is_plain or (path, entry.name) == ("", "info"):
                        trees.remove(entry.name, within=folder)
            return history_of(git, self._theirs, head, snapshot.branches.values(), base)
        except (GitCommandError, OSError) as error:
            _logger.info("the agent's history cannot be read: %s", error)
            return AgentHistory()

    def pack(self, git: GitRunner, snapshot: RepositorySnapshot, commit: str) -> bytes:
        """Return a commit with everything that the repository does not have yet, as a pack of git."""
        wanted = "".join(f"{one}\n" for one in (commit, *(f"^{sha}" for sha in snapshot.branches.values())))
        # Another machine need not have the contents that a thin pack would build on.
        thin = ("--thin",) if self.part is None else ()
        packed = git.feed(wanted, "pack-objects", "--quiet", "--revs", *thin, "--stdout", git_dir=self.ours)
        return packed.encode("utf-8", "surrogateescape")

    def unpack(self, git: GitRunner, snapshot: RepositorySnapshot, pack: bytes) -> None:
        """Make the service's git-dir with the commit of an earlier attempt."""
        self.git_home.mkdir(mode=0o700, parents=True, exist_ok=True)
        borrow(self.ours, snapshot.git_dir)
        git.feed(pack.decode("utf-8", "surrogateescape"), "unpack-objects", "-q", git_dir=self.ours)

    def _indexed(self, git: GitRunner, *paths: str, more: tuple[str, ...] = ()) -> list[str]:
        """Return those of the paths, or the files in them, that are in the index."""
        literal = [f":(top,literal){path}" for path in paths]
        return self._names(git, "ls-files", "-z", "--cached", *more, "--", *literal)

    def _names(self, git: GitRunner, *arguments: str) -> list[str]:
        return git(*arguments, git_dir=self.ours, work_tree=self.tree).split("\0")[:-1]

    def _prepare(self) -> tuple[list[str], list[str]]:
        """Make the checkout readable for git; return the folders of files that had to go, and those that stay locked.

        Nothing may be writing to it. Folders that the agent locked belong to the service's user, and are unlocked.
        """
        gone, locked = list[str](), list[str]()
        trees.unlock(self.tree)
        # Its findings have been read. git would fail if .gitignore hid a folder that a pathspec leaves out.
        trees.remove(self.tree / collect.FOLDER)
        for path, folder, entries in trees.walk(self.tree):
            left = trees.LONGEST_PATH - len(os.fsencode(path))
            for entry in entries:
                # git would enter a repository that the agent made, and obey the configuration it finds there.
                if entry.name.lower() == ".git":
                    if not trees.remove(entry.name, within=folder):
                        raise OSError(f"{path}{entry.name}, which git would obey, cannot be removed")
                elif entry.is_dir(follow_symlinks=False):
                    if not trees.unlock(entry.name, within=folder):
                        locked.append(f"{path}{entry.name}/")
                # git silently skips files in folders that are too deep, and fails as a whole at other such files.
                elif left < _LONGEST_PART and len(os.fsencode(entry.name)) > left:
                    trees.remove(entry.name, within=folder)
                    gone.append(path)
                else:
                    trees.unlock_file(entry, folder)
                    if (
                        self.part
                        and len(self._outside) < _MOST_OUTSIDE
                        and not lies_in(f"{path}{entry.name}", self.part)
                    ):
                        self._outside.append(f"{path}{entry.name}")
                    self._has_attributes |= entry.name == ".gitattributes"
        return gone, locked

    def contents(self, names: Iterable[str]) -> Iterator[bytes]:
        """Yield the names of files in the checkout and their contents, piece by piece."""
        # From its descriptor, as git does: a name that git can open may be too long behind the checkout's own path.
        tree = os.open(self.tree, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in names:
                yield name.encode("utf-8", "surrogateescape") + b"\n"
                with contextlib.suppress(OSError):
                    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=tree)
                    with os.fdopen(descriptor, "rb") as file:
                        yield from iter(lambda: file.read(_PIECE), b"")
                with contextlib.suppress(OSError):
                    yield os.readlink(os.fsencode(name), dir_fd=tree)
        finally:
            os.close(tree)

    def upload(self, commit: TurnCommit) -> None:
        """Upload a commit's large files.

        Raises:
            GitCommandError: They cannot be uploaded.
        """
        if self.large_files is not None:
            self.large_files.upload(self.ours, commit.files.blobs)

    def push(self, git: GitRunner, url: str, branch: str, commit: TurnCommit, expected: str | None) -> None:
        """Push a commit, after its large files, if its branch is still at `expected` (None: does not exist).

        Raises:
            GitCommandError: The branch has moved, or the repository cannot be written.
        """
        self.upload(commit)
        ref = f"refs/heads/{branch}"
        lease = f"--force-with-lease={ref}:{expected or ''}"
        git("push", "--progress", "--no-verify", lease, "--", url, f"{commit.sha}:{ref}", git_dir=self.ours)

    def result(self) -> Result:
        """Read the agent's report on its work; nothing in it can fail the turn."""
        try:
            document = table(json.loads(trees.read(self.result_file, _LARGEST_RESULT)))
        except (OSError, ValueError, RecursionError):
            return Result()
        longest = {"summary": _LONGEST_SUMMARY, "commit_message": _LONGEST_MESSAGE}
        texts = {name: document[name] for name in longest if isinstance(document.get(name), str)}
        return Result(**{name: storable(text).strip()[: longest[name]] or None for name, text in texts.items()})

    def report(self, summary: str) -> None:
        """Write the result file for an agent whose output held a summary, unless it wrote the file itself."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with contextlib.suppress(FileExistsError), os.fdopen(os.open(self.result_file, flags, 0o600), "w") as file:
            json.dump({"summary": summary}, file)

    def remove(self) -> None:
        """Delete the workspace if it was created, including folders that the agent locked."""
        _remove(self.root)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def listed(names: Sequence[str]) -> str:
    """Return the first names, printable and cut, and how many more there are."""
    shown = [one_line(name.encode("utf-8", "replace").decode()) for name in names[:_MOST_NAMED]]
    # Files in too deep folders look alike.
    cut = dict.fromkeys(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name in shown)
    return ", ".join(cut) + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")


def _remove(path: Path) -> None:
    if not trees.remove(path):
        _logger.warning("%s cannot be removed; remove it by hand", path)


class Workspaces:
    """The workspaces of one worker process, which holds a lock for as long as it lives."""

    def __init__(self, folder: DataFolder, executor: str) -> None:
        self._work = folder.work
        self._locks = folder.workers
        self.executor = executor
        """The id of the worker."""
        lock_file = self._locks / executor
        while True:
            self._lock: IO[Any] = lock_file.open("a")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if lock_file.stat().st_ino == os.fstat(self._lock.fileno()).st_ino:
                    break
            # Another worker removed the new lock file, taking it for a dead worker's.
            self._lock.close()

    def path_of(self, turn: str) -> Path:
        """Return where the workspace of an attempt goes; it does not exist yet."""
        return self._work / f"{self.executor}.{turn}"

    def close(self) -> None:
        """Release the lock."""
        (self._locks / self.executor).unlink(missing_ok=True)
        self._lock.close()

    def kill_left_processes(self) -> None:
        """Kill the processes that dead workers on this data folder have left."""
        for name, _ in self._dead():
            self._kill(f"{name}.")

    def remove_left_folders(self) -> None:
        """Remove the workspaces of dead workers on this data folder."""
        for name, lock_file in self._dead():
            self._clear(f"{name}.")
            lock_file.unlink(missing_ok=True)
        living = {file.name for file in self._locks.iterdir()}
        for left in self._work.iterdir():
            if left.name.partition(".")[0] not in living:
                self._clear(left.name)

    def _dead(self) -> Iterator[tuple[str, Path]]:
        """Yield the name and lock file of each dead worker; the lock is held until the next one is asked for."""
        for lock_file in self._locks.iterdir():
            if lock_file.name != self.executor:
                with lock_file.open("a") as lock:
                    if _try_lock(lock):
                        yield lock_file.name, lock_file

    def _kill(self, prefix: str) -> None:
        # An agent's environment names its result file in the workspace, git's names its home there.
        marks = [f"{name}={self._work}{os.sep}{prefix}" for name in ("RUNWARDEN_RESULT", "HOME")]
        killed = sum(map(processes.kill_marked, marks))
        if killed:
            _logger.warning("killed %d processes that a killed worker had left", killed)

    def _clear(self, prefix: str) -> None:
        self._kill(prefix)
        for left in self._work.glob(f"{prefix}*"):
            _remove(left)


def attempts_at_work(folder: DataFolder) -> list[str]:
    """Return the run of each workspace that a living worker on this data folder has."""
    living = set()
    for lock_file in folder.workers.iterdir():
        with contextlib.suppress(FileNotFoundError), lock_file.open("r") as lock:
            if not _try_lock(lock):
                living.add(lock_file.name)
    names = [path.name.partition(".") for path in folder.work.glob("*")]
    return [rest.partition("-")[0] for executor, _, rest in names if executor in living]


def _try_lock(lock: IO[Any]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
