"""The checkout of one attempt: filled from a branch, committed and pushed once the agent has exited."""

import contextlib
import hashlib
import logging
import os
import shutil
import stat
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from service import trees
from service.execution import commits
from service.execution.commits import ChangedFiles, TurnCommit
from service.execution.large_files import FILTER, LargeFiles, object_in, tracked_files
from service.execution.mirror import RepositoryMirror, RepositorySnapshot, lies_in, limit
from service.execution.submodules import Submodules, links
from service.execution.workspace import Workspace
from service.findings import collect
from service.git import GitCommandError, GitRunner
from service.text import one_line, plural

_MAX_NAMED = 5
_MAX_NAME = 200
_MAX_PART = 255
"""How many bytes a file's name can have on Linux."""
_MAX_KEPT_COMMITS = 50
_MAX_OUTSIDE = 1000
_SOME_NOT_ADDED = 1
"""The exit status of `git add --ignore-errors` that could store some files only."""
_logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Checkout:
    """The checkout in a workspace; only changes in it are committed."""

    workspace: Workspace
    mirror: RepositoryMirror
    snapshot: RepositorySnapshot
    """The repository at the latest fetch."""
    left_behind: tuple[str, ...] = ()
    """Patterns of files that the agent's program writes for itself, which are never committed."""
    note: Callable[[str], None] = lambda _: None
    large_files: LargeFiles | None = None
    submodules: Submodules | None = None
    base: str | None = None
    """The commit that it was filled from; None: the repository is empty."""
    _begun_with: frozenset[str] = frozenset()
    """The files of the kept patch that was applied."""
    _theirs: GitRunner = field(init=False)
    """git in a git-dir with the agent's objects."""
    _has_attributes: bool = False
    _outside: list[str] = field(default_factory=list)
    """Files of the agent outside of the paths of its part."""
    _prepared: dict[str, bytes] | None = None
    """The digests of files as the repository's set-up left them; None: it has none."""
    _plain: str | None = None
    """The commit that is checked out, if the checkout is whole and without submodules."""

    def __post_init__(self) -> None:
        self._tree, root = self.workspace.tree, self.workspace.root
        self.git_dir = root / "commit.git"
        """The service's git-dir, made after the agent has exited, so that the agent cannot have changed it."""
        git = self.mirror.git
        self.own_git, self._staging = git.inside(self.git_dir), git.inside(self.git_dir, self._tree)
        self._index = root / "index"
        """The git index of the new checkout, which the agent cannot change."""

    def fill(self, branch: str) -> None:
        """Fill the checkout from the branch, or without one from the default branch."""
        snapshot = self.snapshot
        mirror = self.mirror
        history = self.workspace.history
        agent_git = mirror.git.inside(history, self._tree)
        base = self.base = snapshot.branches.get(branch) or snapshot.default
        filled: list[str] = []
        refs = {f"refs/remotes/origin/{name}": sha for name, sha in snapshot.branches.items()}
        if base:
            refs[f"refs/heads/{branch}"] = base
        mirror.lend(history, branch=branch, refs=refs)
        if mirror.part is not None:
            limit(history, mirror.part)
            # The files that decide on Git LFS may lie outside.
            self._has_attributes = bool(mirror.part)
        if base:
            agent_git("read-tree", "--reset", "-u", "HEAD")
            # Keep the index's time, by which git recognizes files that changed right after it was written.
            shutil.copy2(history / "index", self._index)
            if mirror.part is None and not os.path.lexists(self._tree / ".gitmodules"):
                self._plain = base
            collect.clear(self._tree)
            if self.large_files is not None:
                filled = self.large_files.fill(self._tree, tracked_files(self._attributes(), base), base)
                self.note(f"Git LFS: {plural(len(filled), 'file')}")
            if self.submodules is not None:
                self.submodules.fill(mirror, base, self._tree, self.workspace.root)
            elif names := [path for path, _ in self._links(mirror.git, base)]:
                self.note(f"submodules are not fetched: {list_names(names)}")
        # For the agent's own git: it may commit, and its final checkout becomes the turn's commit.
        (self._tree / ".git").write_text(f"gitdir: {history}\n", "utf-8")
        with (history / "config").open("a", encoding="utf-8") as config:
            config.write("[user]\n\tname = agent\n\temail = agent@runwarden.invalid\n")
            if self.large_files is not None:
                config.write(FILTER)
                (history / "info/attributes").write_text("* -text -ident -working-tree-encoding\n")
        if filled:
            # Otherwise the files would look changed to the agent.
            paths = "".join(f"{name}\0" for name in filled)
            agent_git.feed(paths, "update-index", "-z", "--stdin")

    def _attributes(self) -> GitRunner:
        """Make a git-dir that obeys the attributes of the repository; nothing is checked out with it."""
        folder = self.workspace.root / "attributes.git"
        trees.remove(folder)
        git = self.mirror.lend(folder, *([self.git_dir] if self.git_dir.exists() else []))
        (folder / "info/attributes").unlink()
        return git

    def apply(self, patch: str) -> list[str] | None:
        """Apply a kept patch; return the files that are in conflict; None: it does not fit."""
        git = self.mirror.git.inside(self.workspace.history, self._tree)
        conflicts: list[str] = []
        try:
            git.feed(patch, "apply", "--3way", "--whitespace=nowarn", "-")
        except GitCommandError:
            conflicts = git("diff", "--name-only", "--diff-filter=U", "-z").split("\0")[:-1]
            if not conflicts:
                return None
            # For the agent's git they are ordinary changes.
            git("reset", "--quiet", "--", *conflicts)
        files = git.inside(None).feed(patch, "apply", "--numstat", "-z", "-").split("\0")[:-1]
        self._begun_with = frozenset(entry.split("\t", 2)[2] for entry in files)
        return conflicts

    def note_prepared(self, since_ns: int) -> None:
        """Note the files that the set-up, which began at `since_ns`, left in the checkout: they are not committed."""
        collect.clear(self._tree)
        self._prepared = {}
        for path, _, entries in trees.walk(self._tree):
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    name = f"{path}{entry.name}"
                    if not stat.S_ISDIR(status.st_mode):
                        # Older files are unchanged since the turn began.
                        is_older = status.st_ctime_ns < since_ns
                        self._prepared[name] = b"" if is_older else self._digest(name) or b""

    def _digest(self, name: str) -> bytes | None:
        """Return a digest of a file's type, rights and content; None: there is no such file."""
        try:
            mode = (self._tree / name).lstat().st_mode
        except OSError:
            return None
        digest = hashlib.sha256(oct(mode).encode())
        if not stat.S_ISDIR(mode):
            for piece in trees.contents(self._tree, [name]):
                digest.update(piece)
        return digest.digest()

    def commit(self, message: str, keep: Callable[[str], str] | None = None) -> TurnCommit | None:
        """Commit the changes on top of the base and of the agent's merges; None: there are none.

        `keep`: keeps the agent's own commits, with the messages that this function makes of theirs.
        """
        git, base = self.own_git, self.base
        trees.remove(self.git_dir)
        self.mirror.lend(self.git_dir)
        own_commits, merged = self._agent_history()
        parents = tuple(filter(None, (base, *merged)))
        compared, _ = commits.auto_merge(git, parents)
        left_out = self._add(compared)
        tree, files = self._written(compared)
        fault = None
        if left_out:
            fault = f"the agent left files that git cannot store: {list_names(left_out)}"
        pointers, outsized = self._pointers(tree, files.names)
        if outsized:
            problem = f"the agent changed files that the repository keeps in Git LFS: {list_names(outsized)}"
            fault = fault or f"{problem}; allow it with lfs = true in the repository's setup"
        entries = self._lost_submodules(compared, files) + pointers
        if self._prepared is not None:
            # Files that are as the set-up left them, without those of the kept patch, stay as in the base.
            for name, old in zip(files.names, files.before, strict=True):
                if name not in self._begun_with and self._prepared.get(name) == self._digest(name):
                    entries += f"{old}\t{name}\0"
        if entries:
            git.feed(entries, "update-index", "-z", "--index-info")
            tree, files = self._written(compared)
        if not files.names and fault is None and parents in {(), (base,)}:
            return None
        added = [name for name, old in zip(files.names, files.before, strict=True) if not old.strip(" 0")]
        groups: dict[str, set[str]] = {_fold(name): set() for name in added}
        for name in self._names("ls-files", "-z") if added else ():
            if (group := groups.get(_fold(name))) is not None:
                group.add(name)
        alike = [name for group in groups.values() if len(group) > 1 for name in sorted(group)]
        if alike:
            problem = "names that are the same where case or the form of letters is ignored, as on macOS and Windows"
            self.note(f"{problem}: {list_names(alike)}")
        last = None
        if keep is not None and own_commits:
            try:
                last, files = self._keep(own_commits, files, keep)
            except GitCommandError as error:
                self.note(f"the agent's commits become one: {error}")
        if last is None:
            sha = commits.commit_tree(git, tree, parents, message)
        elif git("rev-parse", f"{last}^{{tree}}") == tree:
            sha = last
        else:
            sha = commits.commit_tree(git, tree, (last,), message)
        is_plain = not merged and (last is None or (sha == last and len(own_commits) == 1))
        return TurnCommit(sha, tree, base, merged, is_plain, compared, files, fault)

    def _written(self, compared: str | None) -> tuple[str, ChangedFiles]:
        """Write the index as a tree; return it with the files that differ from a commit."""
        # The contents of other files may be missing here.
        tree = self.own_git("write-tree", "--missing-ok")
        return tree, commits.changed_between(self.own_git, compared, tree)

    def _add(self, compared: str | None) -> list[str]:
        """Put the checkout into the service's index; return the files that git cannot store."""
        (self.git_dir / "info" / "exclude").write_text("".join(f"{pattern}\n" for pattern in self.left_behind), "utf-8")
        gone, locked = self._prepare()
        if compared is not None:
            # From the checkout's index, git knows which files are unchanged without reading them.
            shutil.copy2(self._index, self.git_dir / "index")
        if compared is None or compared != self._plain:
            self._staging("read-tree", *(("--empty",) if compared is None else ("-i", "-m", compared)))
        if gone or locked:
            hidden = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
            ignored = tuple(name for name in self._names(*hidden) if name.endswith("/"))
            gone, locked = ([path for path in paths if not path.startswith(ignored)] for paths in (gone, locked))
        # git fails as a whole at a folder that it can list but not enter, and at a path that is nowhere.
        part = self.mirror.part
        places = [path for path in part or () if os.path.lexists(self._tree / path) or self._indexed_files([path])]
        scope = [f":(top,literal){path}" for path in places] if part else [":/"]
        chosen = ("--", *scope, *(f":(top,exclude,literal){path}" for path in (collect.FOLDER, *locked)))
        left_out = [*gone, *locked]
        try:
            if scope:
                self._staging("add", "--all", "--ignore-errors", *chosen)
        except GitCommandError as error:
            names = self._names("ls-files", "-z", "--others", "--modified", "--exclude-standard", *chosen)
            # Any other status means that git stored nothing, for a reason unrelated to the files.
            if error.status != _SOME_NOT_ADDED or not names:
                raise
            _logger.info("%s", error)
            left_out += names
        if self._outside and (names := self._indexed_files(self._outside, "--others", "--exclude-standard")):
            self.note(f"files outside of the repository's sparse paths are not committed: {list_names(names)}")
        return left_out

    def _pointers(self, tree: str, names: Sequence[str]) -> tuple[str, list[str]]:
        """Return the index's entries of changed large files, and those that must not be committed as they are."""
        raw = tracked_files(self._attributes(), tree, names) if self._has_attributes else []
        if self.large_files is None:
            existing = (name for name in raw if (self._tree / name).exists())
            return "", [name for name in existing if not object_in(self._tree / name)]
        entries = ""
        for name, pointer in self.large_files.take(self._tree, raw).items():
            mode = "100755" if (self._tree / name).stat().st_mode & stat.S_IXUSR else "100644"
            blob = self.own_git.feed(pointer, "hash-object", "-w", "--stdin").strip()
            entries += f"{mode} {blob}\t{name}\0"
        return entries, []

    def _keep(
        self, own_commits: Sequence[tuple[str, ...]], files: ChangedFiles, keep: Callable[[str], str]
    ) -> tuple[str | None, ChangedFiles]:
        """Make the agent's commits again; return the last, and all files that any of them touches."""
        if len(own_commits) > _MAX_KEPT_COMMITS:
            self.note(f"the agent made more than {_MAX_KEPT_COMMITS} commits: they became one")
            return None, files
        git = self.own_git
        again: dict[str, str] = {}
        own_ids = {commit[0] for commit in own_commits}
        borders = {parent for commit in own_commits for parent in commit[1:]} - own_ids
        revisions = "".join(f"{sha}\n" for sha in (*own_ids, *(f"^{sha}" for sha in borders)))
        pack = self._theirs.feed(revisions, "pack-objects", "--quiet", "--revs", "--thin", "--stdout")
        # In a partial repository, git cannot check the objects behind unchanged tree entries.
        strict = ("unpack-objects", "-q", "--strict")
        checked = ("index-pack", "--stdin", "--fix-thin", "--fsck-objects")
        git.feed(pack, *(checked if self.mirror.part else strict))
        names = dict.fromkeys(files.names)
        blobs = set(files.blobs)
        new = set(files.new)
        for sha, *before in own_commits:
            message = git("log", "--max-count=1", "--format=%B", sha, "--")
            tree = git("rev-parse", f"{sha}^{{tree}}")
            parents = [again.get(parent, parent) for parent in before]
            again[sha] = commits.commit_tree(git, tree, parents, keep(message))
            changed = commits.changed_between(git, commits.auto_merge(git, parents)[0], tree)
            names |= dict.fromkeys(changed.names)
            blobs |= changed.blobs
            new |= changed.new
        return again[own_commits[-1][0]], ChangedFiles(tuple(names), files.before, frozenset(blobs), frozenset(new))

    def _lost_submodules(self, base: str | None, files: ChangedFiles) -> str:
        """Return the entries of submodules that only lost their empty folders; remark on work inside of others."""
        restored, lost = list[str](), list[str]()
        filled = {} if self.submodules is None else self.submodules.filled
        for path, sha in self._links(self.own_git, base):
            folder = self._tree / path
            if path in files.names and ".gitmodules" not in files.names and not folder.exists():
                restored.append(f"{commits.LINK} commit {sha}\t{path}\0")
            elif path not in filled and folder.is_dir() and any(folder.iterdir()):
                lost.append(path)
        lost += [] if self.submodules is None else self.submodules.changed_submodules(self._tree)
        if lost:
            self.note(f"files in submodules are not committed: {list_names(lost)}")
        return "".join(restored)

    def _links(self, git: GitRunner, commit: str | None) -> list[tuple[str, str]]:
        return [] if commit == self._plain else links(git, commit)

    def _agent_history(self) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
        """Read the agent's history, as `commits.history_of` returns it, by a git-dir with the agent's objects."""
        history = self.workspace.history
        head = commits.head_of(history)
        if self.base is None or head is None or head == self.base:
            return [], ()
        theirs = self.workspace.root / "theirs.git"
        trees.remove(theirs)
        self._theirs = self.mirror.lend(theirs, history)
        try:
            # Links and the names of other folders would lead to objects that the agent may not read; a pipe blocks.
            for path, folder, entries in trees.walk(history / "objects"):
                for entry in entries:
                    is_plain = entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
                    if not is_plain or (path, entry.name) == ("", "info"):
                        trees.remove(entry.name, within=folder)
            return commits.history_of(self._theirs, head, self.snapshot.branches.values(), self.base)
        except (GitCommandError, OSError) as error:
            _logger.info("the agent's history cannot be read: %s", error)
            return [], ()

    def pack(self, commit: str) -> bytes:
        """Return a commit with everything that the repository does not have yet, as a pack of git."""
        revisions = "".join(f"{sha}\n" for sha in (commit, *(f"^{known}" for known in self.snapshot.branches.values())))
        # Another machine may lack the contents that a thin pack builds on.
        thin = ("--thin",) if self.mirror.part is None else ()
        packed = self.own_git.feed(revisions, "pack-objects", "--quiet", "--revs", *thin, "--stdout")
        return packed.encode("utf-8", "surrogateescape")

    def unpack(self, pack: bytes) -> None:
        """Make the service's git-dir with the commit of an earlier attempt."""
        self.workspace.git_home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.mirror.lend(self.git_dir)
        self.own_git.feed(pack.decode("utf-8", "surrogateescape"), "unpack-objects", "-q")

    def _indexed_files(self, paths: Sequence[str], *more: str) -> list[str]:
        """Return the indexed files among the paths or inside them."""
        return self._names("ls-files", "-z", "--cached", *more, "--", *(f":(top,literal){path}" for path in paths))

    def _names(self, *arguments: str) -> list[str]:
        return self._staging(*arguments).split("\0")[:-1]

    def _prepare(self) -> tuple[list[str], list[str]]:
        """Make the checkout readable for git; return the folders whose files were removed, and those that stay locked.

        Nothing may be writing to it. Folders that the agent locked belong to the service's user, and are unlocked.
        """
        gone, locked, part = list[str](), list[str](), self.mirror.part
        trees.unlock(self._tree)
        # Its findings have been read. git would fail if .gitignore hid a folder that a pathspec leaves out.
        trees.remove(self._tree / collect.FOLDER)
        for path, folder, entries in trees.walk(self._tree):
            left = trees.MAX_PATH - len(os.fsencode(path))
            for entry in entries:
                name = f"{path}{entry.name}"
                # git would enter a repository that the agent made, and obey the configuration it finds there.
                if entry.name.lower() == ".git":
                    if not trees.remove(entry.name, within=folder):
                        raise OSError(f"{name}, which git would obey, cannot be removed")
                elif entry.is_dir(follow_symlinks=False):
                    if not trees.unlock(entry.name, within=folder):
                        locked.append(f"{name}/")
                # git silently skips files in folders that are too deep, and fails as a whole at other such files.
                elif left < _MAX_PART and len(os.fsencode(entry.name)) > left:
                    trees.remove(entry.name, within=folder)
                    gone.append(path)
                else:
                    trees.unlock_file(entry, folder)
                    if part and len(self._outside) < _MAX_OUTSIDE and not lies_in(name, part):
                        self._outside.append(name)
                    self._has_attributes |= entry.name == ".gitattributes"
        return gone, locked

    def push(self, branch: str, sha: str, expected: str | None) -> None:
        """Push a commit if its branch is still at `expected` (None: does not exist).

        Raises:
            GitCommandError: The branch has moved, or the repository cannot be written.
        """
        ref = f"refs/heads/{branch}"
        lease = f"--force-with-lease={ref}:{expected or ''}"
        self.own_git("push", "--progress", "--no-verify", lease, "--", self.mirror.git.url, f"{sha}:{ref}")


def _fold(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def list_names(names: Sequence[str]) -> str:
    """Return the first names, printable and cut, and how many more there are."""
    safe = [one_line(name.encode("utf-8", "replace").decode()) for name in names[:_MAX_NAMED]]
    # Files in too deep folders look alike.
    cut = dict.fromkeys(name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…" for name in safe)
    return ", ".join(cut) + (f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else "")
