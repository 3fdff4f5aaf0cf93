"""A run's results from the repository itself: its commits and their turns, its change and its review."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from app.engine.text import safe_text
from app.profiles import RepositoryAddress
from app.profiles.repositories import address_of
from app.results.git import Git, GitError
from app.results.mirror import Commit, Heads, Mirror, trim
from app.results.review import findings
from app.results.service import pull_number
from storage.records import Repository, RunDetail
from storage.records.results import Change, ChangedFile, Review, RunTurns, Turn

BY_TIME: Final = "Commits are assigned to turns by time: they carry no mark of this run."


class TurnCommits(Struct, frozen=True):
    """A turn with its commits, oldest first."""

    turn: Turn
    commits: tuple[Commit, ...]


def observed(detail: RunDetail) -> list[Turn]:
    """The turns of a run as they were seen from here: when each began and ended, and how."""
    run, finals = detail.run, detail.final_statuses
    moves: list[tuple[str, datetime | None]] = [(move.new, move.at) for move in detail.transitions]
    moves = moves or [(run.status, run.updated_at)]
    turns: list[Turn] = []
    is_open = False
    for status, at in moves:
        if not is_open:
            begun = at if turns or status not in finals else run.created_at
            turns.append(Turn(len(turns) + 1, status, started_at=begun or at))
        is_open = status not in finals
        ended = None if is_open else at
        turns[-1] = replace(turns[-1], state=status, ended_at=ended, outcome=None if is_open else status)
    if turns[0].started_at is not None and run.created_at is not None:
        turns[0] = replace(turns[0], started_at=min(run.created_at, turns[0].started_at))
    return turns


def of_commits(detail: RunDetail, commits: Sequence[Commit]) -> tuple[list[TurnCommits], str]:
    """The turns of a run with their commits, and a remark on how these were found."""
    seen = observed(detail)
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
    # Commits made after a turn began and before the next one did; their times are whole seconds.
    starts = [None if turn.started_at is None else turn.started_at.replace(microsecond=0) for turn in seen]
    results = []
    for turn, begin, end in zip(seen, starts, (*starts[1:], None), strict=True):
        own = (each for each in commits if begin is not None and each.at >= begin and (end is None or each.at < end))
        results.append(with_commits(turn, tuple(own)))
    return results, BY_TIME if any(each.commits for each in results) else ""


def with_commits(turn: Turn, commits: tuple[Commit, ...]) -> TurnCommits:
    """A turn that made these commits, oldest first."""
    if not commits:
        return TurnCommits(turn, ())
    last = commits[-1]
    return TurnCommits(replace(turn, commit=last.id, summary=turn.summary or last.subject), commits)


REWRITTEN: Final = "The branch was rewritten: some commits are those that were kept."
_REMEMBERED: Final = 50
"""Runs whose repositories were asked lately."""
_MOST_REVIEWS: Final = 20
_LARGEST_REVIEW: Final = 2 << 20


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


class _AskedHeads(Struct, frozen=True):
    """The answer of a repository about a run."""

    asked_s: float
    """Monotonic seconds."""
    updated_at: datetime | None
    """The last change of the run when its repository was asked."""
    heads: Heads


class RunRepositories:
    """The repositories of the runs of one configuration."""

    def __init__(
        self,
        folder: Path,
        addresses: tuple[RepositoryAddress, ...],
        *,
        most_mb: int = 2_000,
        git: Git | None = None,
        fresh_s: float = 20.0,
    ) -> None:
        """Ask a repository about an unchanged run again only after `fresh_s` seconds."""
        self._folder = folder
        self._addresses = addresses
        self._most_bytes = most_mb << 20
        self._git = git or Git()
        self._fresh_s = fresh_s
        self._asked: dict[str, _AskedHeads] = {}
        """The last answer of the repository, by run."""

    def mirror(self, repository: Repository) -> Mirror:
        """The mirror of a repository.

        Raises:
            GitError: No address is configured for it, or none can be made of its name.
        """
        try:
            address = address_of(self._addresses, repository)
        except ValueError as error:
            raise GitError(safe_text(str(error))) from error
        if address is None:
            label = safe_text(repository.label)
            raise GitError(f'Nothing says where {label} is: add it under [repositories], as in "{label}" = "ADDRESS".')
        return Mirror(self._folder, address, self._git)

    def address(self, repository: Repository) -> str | None:
        """The address of a repository; None: not known."""
        with suppress(GitError):
            return self.mirror(repository).address
        return None

    def is_configured(self, repository: Repository) -> bool:
        """Whether an address is configured for a repository."""
        return self.address(repository) is not None

    async def history(self, detail: RunDetail, service_commits: Mapping[int, str] | None = None) -> CommitHistory:
        """Fetch a run's commits, and keep those of its turns; `service_commits`: the commits that the service names.

        Raises:
            GitError: Its repository is not available, or holds nothing of the run.
        """
        run = detail.run
        mirror = self.mirror(run.repository)
        last = self._asked.get(run.run_id)
        is_same = last is not None and not last.heads.problem and last.updated_at == run.updated_at
        if last is not None and is_same and time.monotonic() - last.asked_s < self._fresh_s:
            heads = last.heads
        else:
            heads = await mirror.update(run.branch_name)
            lately = dict(list(self._asked.items())[-_REMEMBERED:])
            self._asked = {**lately, run.run_id: _AskedHeads(time.monotonic(), run.updated_at, heads)}
            await asyncio.to_thread(trim, self._folder, self._most_bytes)
        pinned = await mirror.pinned(run.run_id)
        head, note = await self._head(detail, mirror, heads, {**(service_commits or {}), **pinned})
        base, name, commits = await _base(detail, mirror, heads, head)
        turns, remark = of_commits(detail, commits)
        with_own = {each.turn.number for each in turns if each.commits}
        known = {number: commit for number, commit in pinned.items() if number not in with_own}
        known |= dict(service_commits or {}) if remark or not with_own else {}
        by_id = {commit.id: commit for commit in commits}
        gone = {known[each.turn.number] for each in turns if each.turn.number in known} - by_id.keys()
        if gone and await mirror.bring(gone):
            for commit in gone:
                by_id[commit] = (await mirror.commits(commit, None))[-1]
        if any(known.get(each.turn.number) in gone for each in turns):
            remark = REWRITTEN
        elif not with_own - known.keys():
            remark = ""
        # A turn's commit as known from elsewhere replaces those found on the branch.
        owns = [by_id.get(known.get(each.turn.number, "")) for each in turns]
        turns = [with_commits(each.turn, (own,)) if own else each for each, own in zip(turns, owns, strict=True)]
        for each in turns:
            if each.turn.commit:
                await mirror.pin(run.run_id, each.turn.number, each.turn.commit)
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

    async def turns(self, detail: RunDetail) -> RunTurns:
        """A run's turns, as far as its commits show."""
        history = await self.history(detail)
        return RunTurns(detail.run.run_id, tuple(each.turn for each in history.turns), "git", history.note)

    async def change(
        self, detail: RunDetail, turn: int | None = None, service_commits: Mapping[int, str] | None = None
    ) -> Change:
        """The change of a turn, or of the whole run.

        Raises:
            GitError: As `history`; or the turn has no commit.
        """
        history = await self.history(detail, service_commits)
        if turn is None:
            change = await history.mirror.change(history.base, history.head, history.base_name)
        else:
            known = {each.turn.number: each.commits for each in history.turns}
            if turn not in known:
                raise NoTurnError(f"The run has no turn {turn} in git; it has {len(known)}.")
            commits = known[turn]
            if not commits:
                raise GitError(f"Turn {turn} has no commit: it changed nothing, or nothing of it was pushed yet.")
            base = next(iter(commits[0].parents), None)
            name = "its first parent" if len(commits) == 1 else f"the first parent of its {len(commits)} commits"
            change = await history.mirror.change(
                base, commits[-1].id, name if base else "nothing: it is the first commit"
            )
        return replace(change, note=" ".join(filter(None, (history.note, change.note))))

    async def file(
        self, detail: RunDetail, path: str, turn: int | None = None, service_commits: Mapping[int, str] | None = None
    ) -> Change:
        """A whole file as the run, or a turn, left it, as a change of none of its lines.

        Raises:
            GitError: As `history`; or there is no such text file.
        """
        history = await self.history(detail, service_commits)
        commits = (each.turn.commit for each in history.turns if each.turn.number == turn)
        return await history.mirror.file(next(commits, None) or history.head, path)

    async def reviews(self, detail: RunDetail, change: Change, patterns: Sequence[str]) -> tuple[Review, ...]:
        """The Markdown files that match, of those that a change added or changed.

        Raises:
            GitError: One of them cannot be read.
        """
        mirror = self.mirror(detail.run.repository)
        reviews = []
        for file in written_reviews(change.files, patterns):
            text = (await mirror.blob(file.new_blob or "", _LARGEST_REVIEW)).decode(errors="replace")
            reviews.append(Review(file.path, text, await asyncio.to_thread(findings, text)))
        return tuple(reviews)


def written_reviews(files: Sequence[ChangedFile], patterns: Sequence[str]) -> list[ChangedFile]:
    """The changed text files whose path is a review's; at most twenty, and none that was deleted."""
    there = (file for file in files if file.kind not in {"deleted", "submodule"} and not file.is_binary)
    return [file for file in there if any(fnmatchcase(file.path, each) for each in patterns)][:_MOST_REVIEWS]


async def _base(detail: RunDetail, mirror: Mirror, heads: Heads, head: str) -> tuple[str | None, str, Sequence[Commit]]:
    """The beginning of a run's change, how it was chosen, and the commits since."""
    if heads.default and heads.default != head:
        base = await mirror.merge_base(heads.default, head)
        if base != head:
            commits = await mirror.commits(head, heads.default)
            return base, f"merge base with {heads.default_name}" if base else "nothing: it shares no history", commits
    # The branch is merged, or is the default branch: the marks and times of commits show which are the run's.
    commits = await mirror.commits(head, None)
    own = [commit for each in of_commits(detail, commits)[0] for commit in each.commits]
    if not own:
        return head, f"its own head: nothing was added to {heads.default_name or 'the branch'}", ()
    base = next(iter(own[0].parents), None)
    return base, "the parent of its first commit, as its branch is merged" if base else "nothing", own
