"""Which commits belong to which turn of a run: by the mark that they carry, else by their time; pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from app.results.mirror import Commit
from storage.records import RunDetail
from storage.records.results import Turn

BY_TIME: Final = "Commits are told apart by their time: they carry no mark of this run."


@dataclass(frozen=True, slots=True)
class TurnCommits:
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
    return (
        turns if turns[0].started_at is None else [replace(turns[0], started_at=_earlier(detail, turns[0])), *turns[1:]]
    )


def _earlier(detail: RunDetail, first: Turn) -> datetime | None:
    known = [at for at in (detail.run.created_at, first.started_at) if at is not None]
    return min(known, default=None)


def of_commits(detail: RunDetail, commits: Sequence[Commit]) -> tuple[list[TurnCommits], str]:
    """The turns of a run with their commits, and a remark on how these were found."""
    seen = observed(detail)
    marked = {number: _of(commits, detail, number) for number in _numbers(commits, detail.run.run_id)}
    if marked:
        last = max(*marked, len(seen))
        turns = [*seen, *(Turn(number, "completed") for number in range(len(seen) + 1, last + 1))]
        return [with_commits(turn, marked.get(turn.number, ())) for turn in turns], ""
    starts = [turn.started_at for turn in seen]
    found = [with_commits(turn, tuple(_between(commits, starts, index))) for index, turn in enumerate(seen)]
    return found, BY_TIME if any(each.commits for each in found) else ""


def _numbers(commits: Sequence[Commit], run_id: str) -> Iterator[int]:
    for commit in commits:
        for mark in commit.marks:
            name, _, number = mark.strip().rpartition(" turn ")
            if name == run_id and number.isdecimal() and len(number) < len("1000000"):
                yield int(number)


def _of(commits: Sequence[Commit], detail: RunDetail, number: int) -> tuple[Commit, ...]:
    mark = f"{detail.run.run_id} turn {number}"
    return tuple(commit for commit in commits if mark in (each.strip() for each in commit.marks))


def _between(commits: Sequence[Commit], starts: Sequence[datetime | None], index: int) -> Iterator[Commit]:
    """The commits made after a turn began, and before the next one did; their times are whole seconds."""
    begin, end = (None if at is None else at.replace(microsecond=0) for at in (*starts, None)[index : index + 2])
    for commit in commits:
        if begin is not None and commit.at >= begin and (end is None or commit.at < end):
            yield commit


def with_commits(turn: Turn, commits: tuple[Commit, ...]) -> TurnCommits:
    """A turn that made these commits, oldest first."""
    if not commits:
        return TurnCommits(turn, ())
    last = commits[-1]
    return TurnCommits(replace(turn, commit=last.id, summary=turn.summary or last.subject), commits)
