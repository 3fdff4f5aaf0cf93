"""The starting point of a turn: its branch, and what an earlier turn changed that was not pushed."""

from dataclasses import dataclass, replace
from typing import Literal

from service.execution.git import GitCommandError, GitRunner
from service.execution.secrets import MASK
from service.execution.workspace import Workspace
from service.store.turn_files import LARGEST_FILE
from service.store.turns import Turn


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """What became of an earlier turn's work that was not pushed."""

    source: Literal["patch", "branch"]
    turn: int
    """The earlier turn."""
    text: str
    """A sentence for the agent and the log."""

    def document(self) -> dict[str, object]:
        """Return it as a part of the task document."""
        return {"from": self.source, "turn": self.turn, "text": self.text}


def begin(
    workspace: Workspace, git: GitRunner, turn: Turn, before: Turn | None, patch: bytes | None
) -> StartingPoint | None:
    """Apply the patch that a turn begins with to the branch's checkout, completely or not at all.

    `before` is the turn that was begun before it, and `patch` the kept one of `turn.from_turn`, which may be an
    earlier attempt's at the turn itself. None: nothing was left unpushed.
    """
    number = turn.from_turn
    if number is None:
        if before is None or not before.is_unfinished:
            return None
        return _dropped(before.number, f"Turn {before.number} was not finished")
    fault = "is not kept any longer" if patch is None else _apply(workspace, git, patch)
    if fault is not None:
        return _dropped(number, f"What turn {number} changed {fault}")
    whose = "An earlier attempt at this turn" if number == turn.number else f"Turn {number}"
    text = f"{whose} was not finished: what it changed is in the checkout, and not committed yet."
    return StartingPoint("patch", number, text)


def gone(branch: str, default: str | None, pushed: int, begun: StartingPoint | None) -> StartingPoint:
    """Return the starting point of a turn whose branch, to which the turn `pushed` pushed last, is gone."""
    text = f"The branch {branch} is gone, and was made again from {default or 'nothing'}: "
    text += "what earlier turns pushed is there only if it was merged."
    if begun is None:
        return StartingPoint("branch", pushed, text)
    return replace(begun, text=f"{text} {begun.text}")


def _dropped(number: int, why: str) -> StartingPoint:
    return StartingPoint("branch", number, f"{why}, and its changes were dropped: the checkout is as the branch is.")


def _apply(workspace: Workspace, git: GitRunner, patch: bytes) -> str | None:
    """Return why the patch cannot be applied, and leave the checkout as it was then."""
    if len(patch) >= LARGEST_FILE:
        return f"is larger than {LARGEST_FILE} bytes"
    text = patch.decode("utf-8", "surrogateescape")
    places = {"git_dir": workspace.history, "work_tree": workspace.tree}
    options = ("apply", "--index", "--whitespace=nowarn")
    try:
        git.feed(text, *options, "--check", "-", **places)
    except GitCommandError:
        is_masked = any(line.startswith("-") and MASK in line for line in text.splitlines())
        return "takes out a secret, which its patch masks" if is_masked else "does not fit the branch any longer"
    git.feed(text, *options, "-", **places)
    listed = git.feed(text, "apply", "--numstat", "-z", "-").split("\0")[:-1]
    workspace.begun_with = frozenset(one.split("\t", 2)[2] for one in listed)
    return None
