"""The scope: which commits are compared, which files that puts under review, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from service.reviewer.git import Git
from service.reviewer.limits import REVIEWED_FILES
from service.reviewer.task import Task
from service.reviewer.tree import Change, Entry, list_changes
from service.reviewer.wishes import Wishes

REVIEWS: Final = "reviews/"
"""Where reviews are kept; they are not reviewed."""

Kind = Literal["diff", "tree"]


@dataclass(frozen=True, slots=True)
class Scope:
    """What is under review."""

    kind: Kind
    head: str
    """The commit of the branch."""
    base: str | None
    """The commit it is compared with; None for the whole tree."""
    reason: str
    """A sentence: why this kind."""
    changes: Mapping[str, Change]
    """What the branch changed, by path; empty for the whole tree."""


def choose_scope(git: Git, task: Task, head: str, depth: str | None, before: Kind | None) -> Scope:
    """The branch's difference when there is one and nobody asked for more, else the whole tree.

    Args:
        git: the repository.
        task: names the default branch.
        head: the commit of the branch.
        depth: what was asked for, if anything.
        before: the kind of the last review of this run; a run keeps to its kind, so that two reviews can be compared.

    Raises:
        GitError: a commit cannot be read.
    """
    if depth == "tree":
        return Scope("tree", head, None, "the whole tree was asked for", {})
    if before == "tree" and depth is None:
        return Scope("tree", head, None, "the last review of this run was of the whole tree", {})
    base, reason = _base(git, task.default_branch, head)
    if base is None:
        return Scope("tree", head, None, reason, {})
    changes = {change.path: change for change in list_changes(git, base, head) if not change.path.startswith(REVIEWS)}
    if not changes:
        return Scope("tree", head, None, f"the branch does not differ from {task.default_branch}", {})
    return Scope("diff", head, base, reason, changes)


def _base(git: Git, default_branch: str | None, head: str) -> tuple[str | None, str]:
    """The commit to compare with, or None; and the reason for either."""
    if default_branch is None:
        return None, "there is no default branch to compare with"
    default = git.commit(f"refs/remotes/origin/{default_branch}")
    if default is None:
        return None, f"the default branch {default_branch} is not in this checkout"
    base = git.merge_base(default, head)
    if base is None:
        return None, f"the branch shares no history with {default_branch}"
    return base, f"compared with {default_branch} where the branch left it"


def select(scope: Scope, entries: Mapping[str, Entry], wishes: Wishes) -> tuple[tuple[Entry, ...], int]:
    """The entries under review, and how many more there are than the limit."""
    if scope.kind == "diff":
        candidates = [entries[path] for path in sorted(scope.changes) if path in entries]
    else:
        candidates = [entry for path, entry in entries.items() if not path.startswith(REVIEWS)]
    wanted = [entry for entry in candidates if wishes.covers(entry.path)]
    return tuple(wanted[:REVIEWED_FILES]), max(0, len(wanted) - REVIEWED_FILES)


def gone(scope: Scope) -> frozenset[str]:
    """The paths that the branch deleted or renamed away."""
    deleted = {change.old_path for change in scope.changes.values() if change.status in {"D", "R"}}
    return frozenset(deleted)
