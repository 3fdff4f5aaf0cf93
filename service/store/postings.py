"""Postings: results of a run for its code host, stored when the turn ends and posted afterwards.

A posting states the wanted result, not the steps: a newer request replaces one that is not posted yet. After a crash
at any moment the work is repeated, so every attempt first checks the present state on the code host.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import sqlalchemy as sa

from service.agents.options import OnCompletion
from service.clock import Micros, rfc3339_or_none
from service.findings import SEVERITIES, count_severities
from service.store import agents, runs, turn_files
from service.store.rows import insert_new, record_of, records_of, update
from service.store.runs import Run
from service.store.schema import postings, turns
from service.store.schema import runs as runs_table
from service.store.turn_files import Key

if TYPE_CHECKING:
    from service.store.turns import TurnOutcome

Kind = Literal["pull_request", "review", "status", "comment"]
State = Literal["success", "failure", "error"]
WAITING: Final = "waiting"
POSTED: Final = "posted"
REFUSED: Final = "refused"
_MAX_COMPARED: Final = 5
"""How many pull requests with the same change are looked up on the code host."""


@dataclass(frozen=True, slots=True)
class Posting:
    """A result that was posted or will be."""

    run_id: str
    kind: Kind
    subject: str
    """The commit of a status; empty for kinds that a run has only once."""
    number: int
    """The turn that requested it last."""
    wanted: dict[str, Any]
    version: int
    state: str
    attempts: int
    wanted_at: Micros
    due_at: Micros
    posted_at: Micros | None
    failure: str | None
    """Why it waits or was refused; a remark if it was posted."""
    url: str | None

    def document(self) -> dict[str, object]:
        document = {
            "kind": self.kind,
            "state": self.state,
            "turn": self.number,
            "url": self.url,
            "reason": self.failure,
        }
        posted_at = rfc3339_or_none(self.posted_at)
        return document | {"commit": self.subject or self.wanted.get("commit"), "posted_at": posted_at}


@dataclass(frozen=True, slots=True)
class Posted:
    """The result of a posting."""

    url: str | None = None
    note: str | None = None
    """A remark, such as that someone closed the pull request."""


def same_changes(connection: sa.Connection, run: Run, posting: Posting, now: Micros) -> Sequence[Any]:
    """Return run_id, branch, commit_sha and state of others' pull requests with this change, open or wanted earlier."""
    of_turn = (turns.c.run_id == postings.c.run_id, turns.c.number == postings.c.number)
    own_tree = sa.select(turns.c.tree_sha).where(turns.c.run_id == run.id, turns.c.number == posting.number)
    present = sa.tuple_(sa.literal(posting.wanted_at), sa.literal(run.id))
    earlier = sa.tuple_(postings.c.wanted_at, postings.c.run_id) < present
    # A posting with a remark did not open a pull request itself.
    opened = (postings.c.state == POSTED) & postings.c.failure.is_(None)
    query = (
        sa.select(postings.c.run_id, runs_table.c.branch, turns.c.commit_sha, postings.c.state)
        .join(turns, sa.and_(*of_turn))
        .join(runs_table, runs_table.c.id == postings.c.run_id)
        .where(
            turns.c.tree_sha == own_tree.scalar_subquery(),
            runs_table.c.organization_id == run.organization_id,
            runs_table.c.url == run.url,
            runs_table.c.branch != run.branch,
            postings.c.kind == "pull_request",
            # A failed posting is waited for only once it is due again.
            opened | (sa.and_(*_due(now)) & earlier),
        )
        .order_by(postings.c.wanted_at.desc())
    )
    return connection.execute(query.limit(_MAX_COMPARED)).all()


def at_work(connection: sa.Connection, run: Run, number: int, commit: str, now: Micros) -> None:
    """Request the status that a turn is at work, for the commit that its branch had when it began."""
    is_open = (turns.c.run_id == run.id, turns.c.number == number, turns.c.status.in_(runs.OPEN))
    # The row is locked: if the turn ends at the same time, no later status would replace this one.
    if connection.execute(sa.select(turns.c.number).where(*is_open).with_for_update()).first() is not None:
        content = {"state": "pending", "text": f"{run.agent} is at work", "agent": run.agent}
        want(connection, (run.id, number), "status", content, now, commit)


def at_end(connection: sa.Connection, run: Run, number: int, outcome: "TurnOutcome", state: State, now: Micros) -> None:
    """Request the postings of a turn, in the transaction that ends it."""
    turn = (run.id, number)
    agent = agents.by_name(connection, run.organization_id, run.agent)
    plan = OnCompletion() if agent is None else agent.options.on_completion
    before = of_run(connection, run.id)
    if any(posting.kind == "comment" for posting in before):
        renew_comment(connection, run.id, now, number)
    commits = {posting.subject for posting in before if posting.wanted.get("state") == "pending"}
    if plan.status and outcome.commit_sha:
        commits.add(outcome.commit_sha)
    text = outcome.failure or outcome.summary or "nothing to change"
    stored = turn_files.content(connection, turn, turn_files.FINDINGS)
    reported = None if stored is None else json.loads(stored)
    status = state
    gate = plan.status if isinstance(plan.status, str) and state == "success" else None
    if gate and (unread := turn_files.content(connection, turn, turn_files.UNREAD)) is not None:
        status = "error"
        text = f"not all findings could be read: {unread.decode()}"
    if gate and reported is not None:
        severities = [finding["severity"] for finding in reported["findings"]]
        grave = SEVERITIES[: SEVERITIES.index(gate) + 1]
        if counts := count_severities(severity for severity in severities if severity in grave):
            status, text = "failure", f"found {counts}: {text}"
    for commit in sorted(commits):
        want(connection, turn, "status", {"state": status, "text": text, "agent": run.agent}, now, commit)
    if plan.pull_request != "off" and outcome.commit_sha:
        content = {"commit": outcome.commit_sha, "is_draft": plan.pull_request == "draft"}
        want(connection, turn, "pull_request", content, now)
    if plan.review and state == "success" and reported is not None:
        content = {"commit": outcome.commit_sha or reported["base"], "findings": reported["findings"]}
        want(connection, turn, "review", content, now)


def want(
    connection: sa.Connection, turn: Key, kind: Kind, content: dict[str, Any], now: Micros, subject: str = ""
) -> None:
    """Request a posting, replacing an earlier request; one that is being posted is posted again afterwards."""
    run_id, number = turn
    key = {"run_id": run_id, "kind": kind, "subject": subject}
    news = {"number": number, "wanted": content}
    if not insert_new(connection, postings, key | news | _again(now) | {"version": 1}):
        update(connection, postings, *_is(run_id, kind, subject), **news, **_again(now))


def withdraw_pull_requests(connection: sa.Connection, run_ids: Sequence[str], reason: str, now: Micros) -> None:
    """Open none of the runs' pull requests that are not open yet."""
    conditions = (postings.c.run_id.in_(run_ids), postings.c.kind == "pull_request", postings.c.state == WAITING)
    news = {"state": POSTED, "failure": reason, "posted_at": now, "version": postings.c.version + 1}
    update(connection, postings, *conditions, **news)


def renew_comment(connection: sa.Connection, run_id: str, now: Micros, number: int | None = None) -> None:
    """Post the comment on a run's issue again, since its content changed; `number`: the turn that it is about now."""
    news = _again(now) | ({} if number is None else {"number": number})
    update(connection, postings, *_is(run_id, "comment", ""), **news)


def pull_requests(connection: sa.Connection, run_ids: Sequence[str]) -> dict[str, str]:
    """Return the addresses of the runs' pull requests, keyed by run id."""
    opened = (postings.c.run_id.in_(run_ids), postings.c.kind == "pull_request", postings.c.url.is_not(None))
    return dict(connection.execute(sa.select(postings.c.run_id, postings.c.url).where(*opened)).all())


def first_due(connection: sa.Connection, run_id: str, now: Micros) -> Posting | None:
    """Return a run's first due posting; a pull request comes before its review and the comment, which need it."""
    order = [postings.c.wanted_at, postings.c.kind != "pull_request", postings.c.kind]
    return record_of(connection, Posting, postings, *_due(now), run_id=run_id, order=order)


def put_off(connection: sa.Connection, run: Run, until: int) -> None:
    """Postpone everything due at a run's code host until an instant: it asked for a pause, or does not answer."""
    same = (runs_table.c.organization_id == run.organization_id, runs_table.c.platform == run.platform)
    same_host = sa.select(runs_table.c.id).where(*same)
    waiting = (postings.c.state == WAITING, postings.c.due_at < until, postings.c.run_id.in_(same_host))
    update(connection, postings, *waiting, due_at=until)


def mark_posted(connection: sa.Connection, posting: Posting, posted: Posted, now: Micros) -> None:
    """Record a success; the posting stays due if a newer request replaced it in the meantime."""
    same = _is(posting.run_id, posting.kind, posting.subject)
    url = posted.url or posting.url
    update(connection, postings, *same, url=url, posted_at=now, attempts=postings.c.attempts + 1)
    update(connection, postings, *same, postings.c.version == posting.version, state=POSTED, failure=posted.note)
    if posting.kind == "pull_request" and posted.url != posting.url:
        renew_comment(connection, posting.run_id, now)
    if posting.kind != "status" and posting.posted_at is None:
        # Clients that already read the run's results must notice the change.
        runs.touch(connection, posting.run_id, now)


def mark_failed(connection: sa.Connection, posting: Posting, failure: str, *, due_at: Micros | None) -> None:
    """Record why it was not posted, unless a newer request replaced it; `due_at` is when to retry, None to give up."""
    same = (*_is(posting.run_id, posting.kind, posting.subject), postings.c.version == posting.version)
    then: dict[str, object] = {"state": REFUSED} if due_at is None else {"due_at": due_at}
    update(connection, postings, *same, attempts=postings.c.attempts + 1, failure=failure, **then)


def of_run(connection: sa.Connection, run_id: str) -> list[Posting]:
    return records_of(connection, Posting, postings, run_id=run_id, order=[postings.c.kind, postings.c.wanted_at])


def refused_postings(connection: sa.Connection, limit: int) -> list[Posting]:
    """Return the latest postings that were given up."""
    return records_of(connection, Posting, postings, state=REFUSED, order=[postings.c.wanted_at.desc()], limit=limit)


def _again(now: Micros) -> dict[str, Any]:
    state = {"state": WAITING, "attempts": 0, "wanted_at": now, "due_at": now, "failure": None}
    return state | {"version": postings.c.version + 1}


def _due(now: Micros) -> tuple[sa.ColumnElement[bool], ...]:
    return postings.c.state == WAITING, postings.c.due_at <= now


def _is(run_id: str, kind: str, subject: str) -> tuple[sa.ColumnElement[bool], ...]:
    return postings.c.run_id == run_id, postings.c.kind == kind, postings.c.subject == subject
