"""Makes a turn's commit and its patches, keeps the agent's merges, and follows a branch that others have moved."""

import contextlib
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from service import trees
from service.agents.options import ChangeLimits
from service.git import GitCommandError, GitRunner
from service.text import not_closing, plural

LINK: Final = "160000"
"""The mode of a submodule."""
EMPTY_TREE: Final = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
# With this option on submodules, git reads no `.gitmodules`: the repository could make it fail with that file.
COMPARE: Final = ("diff-tree", "-r", "--no-renames", "--ignore-submodules=none")
KEPT_AS_PATCH: Final = (
    "the change is kept as a patch; continue the run to let the agent apply it to the branch as it is now"
)
TRAILER: Final = "Runwarden-Run"
"""The key of the line that marks a turn's commits."""
# git allows blanks around a key, and looks for no trailer below a scissors line.
_FORGED: Final = re.compile(rf"\s*{TRAILER}\s*:|.*-{{24}} >8 -{{24}}", re.IGNORECASE)
_SEARCHED_COMMITS: Final = 500
_SUBJECT_LENGTH: Final = 60
_CONFLICT: Final = 1
"""The exit status of `git merge-tree` when files are in conflict."""
_MAX_COMMITS: Final = 1000
_MAX_LINKS: Final = 5
_MAX_REFS: Final = 1 << 20
_KEY_FAULTS: Final = {
    "unprotected private key": "others may read it; run: chmod 600",
    "passphrase": "it has a passphrase; remove it with: ssh-keygen -p",
}
"""The faults of a signing key, each with words that ssh-keygen prints about it."""
_MAX_CONTENT: Final = 256 << 20
"""A patch of files with no more bytes than this is always made; patches are held in memory."""
_PATCH: Final = (
    *(*COMPARE, "--numstat", "-p", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color"),
    *("--submodule=short", "--src-prefix=a/", "--dst-prefix=b/"),
)
_ID: Final = re.compile("[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """The files that differ between two trees, including those that only one of them has."""

    names: tuple[str, ...]
    before: tuple[str, ...]
    """The mode and id of each file in the base, in the form of git's index; zeros: the base does not have it."""
    blobs: frozenset[str]
    """The object ids of the files, before and after the change."""
    new: frozenset[str]
    """The object ids of the files after the change."""


def changed_between(git: GitRunner, base: str | None, tree: str) -> ChangedFiles:
    """Return the files that differ between a base (None: the empty tree) and a commit or tree."""
    listing = git(*COMPARE, "-z", "--raw", base or EMPTY_TREE, tree).split("\0")[:-1]
    # Entries alternate: modes, object ids and status, then the path.
    entries = [entry.removeprefix(":").split() for entry in listing[::2]]
    before = tuple(f"{entry[0]} {entry[2]}" for entry in entries)
    new = frozenset(entry[3] for entry in entries if entry[1] != LINK)
    old = {entry[2] for entry in entries if entry[0] != LINK}
    return ChangedFiles(tuple(listing[1::2]), before, new | old, new)


@dataclass(frozen=True, slots=True)
class TurnCommit:
    """A commit of a turn's changes, or the last of several."""

    sha: str
    tree: str
    base: str | None
    """The branch's commit that it is put on top of; None: the branch is new in an empty repository."""
    merged: tuple[str, ...]
    """Commits of the repository that the agent merged."""
    is_plain: bool
    """Whether it is one commit with the base as its only parent."""
    compared: str | None
    """The commit to compare its change with: the base, or git's merge of it with `merged`; None: the empty tree."""
    files: ChangedFiles
    fault: str | None = None
    """Why it must not be pushed: files that git could not store, or that belong into Git LFS; None: it may be."""


def commit_tree(git: GitRunner, tree: str, parents: Sequence[str], message: str, *, is_signed: bool = True) -> str:
    """Make a commit, signed if the service has a key, and return its id."""
    options = [word for parent in parents for word in ("-p", parent)]
    key, command = git.signing_key if is_signed else None, ["commit-tree"]
    if key is not None:
        command = ["-c", "gpg.format=ssh", "-c", f"user.signingKey={key}", "commit-tree", "-S"]
    return git.feed(message, *command, tree, *options, "-F", "-").strip()


def check_signing(key: Path) -> None:
    """Check that an ssh key can sign, by signing an empty text.

    Raises:
        GitCommandError: It cannot sign.
    """
    if not os.access(key, os.R_OK):
        reason = "the service's user cannot read this file; correct execution.signing.ssh_key, or the file's owner"
        raise GitCommandError(f"commits cannot be signed with {key}: {reason}")
    command = ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", str(key)]
    try:
        done = subprocess.run(command, input=b"", capture_output=True, start_new_session=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitCommandError(f"commits cannot be signed: {error}; install ssh-keygen") from error
    if done.returncode:
        text = done.stderr.decode("utf-8", "replace").lower()
        reason = next(
            (reason for word, reason in _KEY_FAULTS.items() if word in text), "it is no private key in OpenSSH's form"
        )
        raise GitCommandError(f"commits cannot be signed with {key}: {reason}")


def auto_merge(git: GitRunner, parents: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """Return the commit that git makes of several, for comparison only, and the files that are in conflict in it."""
    if not parents:
        return None, ()
    merged, conflicts = parents[0], list[str]()
    for other in parents[1:]:
        options = ("--write-tree", "-z", "--name-only", "--no-messages", "--allow-unrelated-histories")
        try:
            printed = git("merge-tree", *options, merged, other)
        except GitCommandError as error:
            if error.status != _CONFLICT:
                raise
            printed = error.printed
        tree, *names = printed.rstrip("\0").split("\0")
        conflicts += names
        merged = commit_tree(git, tree, (merged, other), "Merge", is_signed=False)
    return merged, tuple(dict.fromkeys(conflicts))


def commit_message(agent_message: str | None, agent: str, instructions: str, trailer: str) -> str:
    """Return the message of a turn's commit, the agent's own if it gave one, with the trailer; it closes no issue."""
    first_line = " ".join(instructions.split())[:_SUBJECT_LENGTH]
    lines = (agent_message or f"{agent}: {first_line}".rstrip(": ")).splitlines()
    # Only the service may write the trailer: with one, an agent could make a later turn look done.
    text = "\n".join(line for line in lines if not _FORGED.match(line)).strip()
    return f"{not_closing(text) or agent}\n\n{TRAILER}: {trailer}\n"


def own_commit(git: GitRunner, head: str | None, trailer: str) -> tuple[str, str] | None:
    """Return the id and subject of the turn's commit that an earlier attempt pushed before it could report it.

    `head`: the branch's commit; None: there is no branch.
    """
    if head is None:
        return None
    form = f"--format=%H%x09%s%x09%(trailers:key={TRAILER},valueonly,separator=%x2C)"
    for line in git("log", f"--max-count={_SEARCHED_COMMITS}", form, head, "--").splitlines():
        commit, _, rest = line.partition("\t")
        subject, _, marks = rest.rpartition("\t")
        if trailer in marks.split(","):
            # Others can push a commit with this trailer, and its message need not be valid text.
            return commit, subject.encode("utf-8", "replace").decode()
    return None


def commit_of(git: GitRunner, sha: str, trailer: str) -> TurnCommit:
    """Read a turn's commit; those before it that have its trailer belong to it."""
    form = f"--format=%H %T %P%x09%(trailers:key={TRAILER},valueonly,separator=%x2C)"
    output = git("log", "--first-parent", f"--max-count={_MAX_COMMITS}", form, sha, "--")
    entries = [line.partition("\t") for line in output.splitlines()]
    own_commits = [entry.split() for entry, _, marks in entries if trailer in marks.split(",")]
    tree, base = own_commits[0][1], next(iter(own_commits[-1][2:3]), None)
    merged: list[str] = []
    for other in (parent for entry in own_commits for parent in entry[3:]):
        marks = git("log", "--max-count=1", form, other, "--").partition("\t")[2]
        # Its own commit, merged with commits that others had pushed.
        is_own = trailer in marks.split(",")
        merged += commit_of(git, other, trailer).merged if is_own else [other]
    compared, _ = auto_merge(git, tuple(filter(None, (base, *merged))))
    files = changed_between(git, compared, tree)
    is_plain = len(own_commits) == 1 and own_commits[0][2:] == ([] if base is None else [base])
    return TurnCommit(sha, tree, base, tuple(merged), is_plain, compared, files)


def move_commit(git: GitRunner, commit: TurnCommit, head: str, branch: str) -> TurnCommit:
    """Return a turn's commit on top of the commits that others pushed to its branch while the agent worked.

    Raises:
        GitCommandError: The branch no longer has the commits that the agent started from, or the changes conflict.
    """
    try:
        if commit.base is not None:
            git("merge-base", "--is-ancestor", commit.base, head)
    except GitCommandError as error:
        raise GitCommandError(f"the branch {branch} was rewritten while the agent worked; {KEPT_AS_PATCH}") from error
    whole, conflicts = auto_merge(git, (head, commit.sha))
    if conflicts:
        names = ", ".join(conflicts[:_MAX_LINKS]) + (" …" if len(conflicts) > _MAX_LINKS else "")
        text = f"others pushed to {branch} while the agent worked, and its change conflicts with theirs in {names}"
        raise GitCommandError(f"{text}; {KEPT_AS_PATCH}")
    # A merge stays a merge, and several commits stay several commits.
    parents = (head,) if commit.is_plain else (head, commit.sha)
    message = git("log", "--max-count=1", "--format=%B", commit.sha, "--")
    tree = git("rev-parse", f"{whole}^{{tree}}")
    sha = commit_tree(git, tree, parents, f"{message.strip()}\n")
    compared, _ = auto_merge(git, (head, *commit.merged))
    files = changed_between(git, compared, tree)
    return TurnCommit(sha, tree, head, commit.merged, commit.is_plain, compared, files)


def history_of(
    git: GitRunner, head: str, branches: Iterable[str], base: str
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Read the history of an agent at `head`, in a git-dir of the service that borrows the agent's objects.

    Return the agent's own commits, each followed by its parents, oldest first, or none if they do not build on `base`;
    and the commits of the repository, whose `branches` are known, that it merged into the base, or moved to.
    """
    commits_known = {base, *branches}
    order = ("--topo-order", "--reverse", "--parents", f"--max-count={_MAX_COMMITS}")
    output = git("rev-list", *order, head, *(f"^{commit}" for commit in commits_known))
    commits = [tuple(line.split()) for line in output.splitlines()]
    reached = ({head} | {parent for commit in commits for parent in commit[1:]}) - {commit[0] for commit in commits}
    apart = git("merge-base", "--independent", base, *sorted(reached)).split()
    return commits if base in reached else [], tuple(commit for commit in apart if commit != base)


def head_of(git_dir: Path) -> str | None:
    """Return the commit of HEAD in a git-dir in which an agent may have changed anything; None: there is none."""
    name = "HEAD"
    for _ in range(_MAX_LINKS):
        text = _read(git_dir / name).strip()
        if _ID.fullmatch(text):
            return text
        if not text.startswith("ref: refs/") or ".." in text:
            break
        name = text.removeprefix("ref: ")
    packed = (line.partition(" ") for line in _read(git_dir / "packed-refs").splitlines())
    return next((sha for sha, _, ref in packed if ref == name and _ID.fullmatch(sha)), None)


def _read(file: Path) -> str:
    with contextlib.suppress(OSError):
        return trees.read(file, _MAX_REFS).decode("utf-8", "replace")
    return ""


@dataclass(frozen=True, slots=True)
class TurnChange:
    """The extent of a turn's change: its commits and its size. Its fields have the names of a turn's fields."""

    base_sha: str | None
    """The branch's commit before the turn; None: the branch did not exist."""
    merge_base: str | None
    """The commit where the branch left the default branch; None: they have no common history."""
    files: int
    additions: int
    deletions: int
    tree_sha: str | None
    """The tree after the change; changes of two turns with the same tree are the same. None: nothing changed."""


def write_patches(
    git: GitRunner, commit: TurnCommit, default: str | None, mask: Callable[[str], str], diffs: Mapping[str, Path]
) -> TurnChange:
    """Write a commit's patch without secrets, and the whole run's unless the two are the same.

    `default`: the default branch's commit; None: the repository has no default branch.

    Raises:
        GitCommandError: git could not make one.
    """

    def write(file: Path, base: str | None) -> tuple[int, int, int]:
        """Write a patch into a file; return the numbers of files, added lines and removed lines."""
        printed = git.feed(None, *_PATCH, base or EMPTY_TREE, commit.sha)
        # A line for each file comes first, then an empty one.
        counts, _, patch = printed.partition("\n\n")
        file.write_bytes(mask(patch).encode("utf-8", "surrogateescape"))
        lines = [line.split("\t", 2)[:2] for line in counts.splitlines()]
        # A binary file counts as '-'.
        added, removed = (sum(int(line[side]) for line in lines if line[side] != "-") for side in (0, 1))
        return len(lines), added, removed

    base = commit.base
    merge_base = base if base and base == default else None
    if merge_base is None and default is not None:
        with contextlib.suppress(GitCommandError):
            merge_base = git("merge-base", default, commit.sha)
    size = write(diffs["diff"], commit.compared)
    if merge_base == commit.compared:
        diffs["run.diff"].unlink(missing_ok=True)
    else:
        write(diffs["run.diff"], merge_base)
    return TurnChange(base, merge_base, *size, commit.tree)


def content_bytes(git: GitRunner, files: ChangedFiles) -> int:
    """Return the size of the touched files, before and after: making a patch reads all of them."""
    sizes = git.feed("\n".join(files.blobs), "cat-file", "--batch-check=%(objectsize)")
    # git prints `missing` for a blob that does not exist, and for a submodule's commit.
    return sum(int(size) for size in sizes.split("\n") if size.isdecimal())


def oversize(limits: ChangeLimits, content_bytes: int) -> str | None:
    """Return why a change is so large that no patch is made of it; None: one is made."""
    max_bytes = max(_MAX_CONTENT, 4 * limits.bytes)
    if content_bytes <= max_bytes:
        return None
    reason = f"the files that it touches have {content_bytes} bytes, more than {max_bytes} (four times change.bytes)"
    return f"the change was not pushed: {reason}"


def refusal(limits: ChangeLimits, names: Sequence[str], patch_bytes: int) -> str | None:
    """Return why a change is not pushed, with the key that allows it; None: it is within its limits."""
    guarded = next(((name, pattern) for name in names for pattern in limits.protected if _touches(name, pattern)), None)
    if guarded is not None:
        reason = f"it touches {guarded[0]}, which is protected by {guarded[1]!r} (change.protected)"
    elif len(names) > limits.files:
        reason = f"it touches {plural(len(names), 'file')}, more than {limits.files} (change.files)"
    elif patch_bytes > limits.bytes:
        reason = f"its patch has {patch_bytes} bytes, more than {limits.bytes} (change.bytes)"
    else:
        return None
    return f"the change was not pushed: {reason}; see it with: runwarden runs diff RUN_ID"


def _touches(name: str, pattern: str) -> bool:
    """Whether a file is protected, lies in a protected folder or would replace one; like some disks, ignore case."""
    name, pattern = name.lower(), pattern.lower()
    if pattern.endswith("/"):
        return name.startswith(pattern) or pattern.startswith(f"{name}/")
    return fnmatchcase(name, pattern) or pattern.startswith(f"{name}/")
