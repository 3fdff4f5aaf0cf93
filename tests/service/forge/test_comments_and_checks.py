"""Comments and failed checks that start runs: of whom, once, for which commit, and never in a loop."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from service.api.hooks import event_of
from service.clock import now_micros
from service.forge.accounts import completed
from service.settings import Settings
from service.setup import RepositoryEntry, add_repository
from service.store import deliveries, organizations, repositories, turns
from service.store.database import Database
from service.store.repositories import Repository
from service.triggers.events import HookEvent, PayloadError
from service.triggers.receiver import Receiver, WebhookDelivery
from service.triggers.rules import TriggerRule
from tests.lab import Respond
from tests.service.conftest import organization
from tests.service.forge.conftest import Desk
from tests.service.payloads import (
    forgejo_comment,
    forgejo_run,
    github,
    github_check,
    github_comment,
    gitlab,
    gitlab_note,
    gitlab_pipeline,
)
from tests.waiting import present

SHA: Final = "a1b2c3d4" * 5
ASK: Final = "@runwarden review"
ON_COMMENT: Final = TriggerRule(agent="reviewer", instructions="Review it.", on=("comment",), authors=("Dora",))
ON_FAILED: Final = TriggerRule(agent="reviewer", instructions="Mend it.", on=("failed",), own_commits=1)


def event(name: str, document: dict[str, Any], platform: str = "github") -> HookEvent | None:
    platform = "gitlab" if name.endswith("Hook") else platform
    header = "x-gitlab-event" if platform == "gitlab" else "x-github-event"
    return event_of(platform, {header: name}, json.dumps(document).encode())


def commented(words: str, sha: str = SHA, **given: Any) -> HookEvent | None:
    """Return what is read of a comment on the diff, which names the whole pull request."""
    return event("pull_request_review_comment", github_comment(words, sha, **given))


def test_a_comment_asks_by_its_first_words() -> None:
    """A quotation, a block of code, a mention further on and another name ask for nothing."""
    for words, command, rest in (
        (ASK, "review", ""),
        ("  @RunWarden  Review\nthe login, please", "review", "the login, please"),
        ("> @runwarden review", None, None),
        ("\n \n \t@runwarden review", None, None),
        ("```\n@runwarden review\n```", None, None),
        ("Please, @runwarden review", None, None),
        ("@runwarden-bot review", None, None),
    ):
        found = event("issue_comment", github_comment(words))
        note = event("Note Hook", gitlab_note(words, SHA))

        for one in (found, note):
            assert (one and (one.command, one.words)) == (command and (command, rest))


def test_a_comment_names_its_pull_request_as_far_as_the_code_host_does() -> None:
    """GitHub tells the head only with a comment on the diff; a deletion, or a note on a commit: nothing."""
    diff = present(commented("@runwarden review it"))
    found = [
        event("issue_comment", github_comment(ASK, number=12)),
        event("Note Hook", gitlab_note(ASK, SHA, number=12)),
        event("issue_comment", forgejo_comment(ASK, SHA, number=12), "forgejo"),
    ]
    nothing = [
        event("issue_comment", github_comment(ASK, action="deleted")),
        event("Note Hook", gitlab_note(ASK, SHA, noteable="Commit")),
    ]

    assert (diff.head_sha, diff.base, diff.is_whole, diff.words) == (SHA, "main", True, "On src/app.py, line 3: it")
    assert [one and (one.number, one.head_sha, one.base, one.is_whole, one.cause) for one in found] == [
        (12, "", "", False, "comment 501"),
        (12, SHA, "main", True, "comment 601"),
        (12, SHA, "main", True, "comment 501"),
    ]
    assert nothing == [None] * 2


def test_a_comment_that_may_be_forged_starts_nothing_and_says_why() -> None:
    """Edited later, by another hand, on what is over, or the service's own."""
    for given, fault in (
        ({"action": "edited"}, "the comment was edited: only a new one counts"),
        ({"author": "eve"}, "it was sent by another than its author"),
        ({"state": "closed"}, "the pull request is closed"),
        ({"words": "@runwarden review <!-- runwarden:x -->"}, "the service wrote it"),
        ({"words": "@runwarden review " + "x" * 20_000}, "it is longer than 20000 characters"),
    ):
        assert present(commented(**{"words": ASK} | given)).fault == fault
        if "action" in given:
            assert (
                present(event("Note Hook", gitlab_note(ASK, SHA, updated_at="2026-01-01 00:00:00 UTC"))).fault == fault
            )


def test_a_field_that_cannot_be_read_is_named() -> None:
    """A date, or text that no database takes."""
    late = gitlab("open", SHA)
    late["object_attributes"]["updated_at"] = "2026-02-30 08:00:00 UTC"
    for name, document, field in (
        ("Merge Request Hook", late, "updated_at"),
        ("issue_comment", github_comment(ASK, state="\ud800"), r"issue\.state"),
    ):
        with pytest.raises(PayloadError, match=rf"{field}: "):
            event(name, document)


def test_what_a_code_host_leaves_out_refuses_nothing_else() -> None:
    """A deleted account, a request without commits, and the time of any zone."""
    ghost = github_comment(ASK, SHA)
    ghost["comment"]["user"] = None
    empty = gitlab("open", SHA)
    empty["object_attributes"]["last_commit"] = None
    local = gitlab_note(ASK, SHA, updated_at="2026-01-31 09:30:00 +0130")
    local["object_attributes"]["created_at"] = "2026-01-31 08:00:00 UTC"

    assert present(event("pull_request_review_comment", ghost)).fault == "it was sent by another than its author"
    assert present(event("Merge Request Hook", empty)).fault == "the merge request has no commits"
    assert present(event("Note Hook", local)).fault == ""


def test_only_a_check_that_failed_counts() -> None:
    """By its name; who sent it means nothing."""
    for name, document, check in (
        ("check_run", github_check(SHA), "test"),
        ("workflow_run", github_check(SHA, "CI", workflow=True), "CI"),
        ("check_run", github_check(SHA, conclusion="success"), None),
        ("action_run_failure", forgejo_run(SHA, "#12"), "ci.yml"),
        ("action_run_failure", forgejo_run(SHA, "fix/login", "cancelled"), None),
        ("Pipeline Hook", gitlab_pipeline(SHA, "fix/login"), "pipeline"),
        ("Pipeline Hook", gitlab_pipeline(SHA, "fix/login", "success"), None),
    ):
        found = event(name, document, "forgejo" if name.startswith("action") else "github")

        assert (found and (found.check, found.head_sha)) == (check and (check, SHA))


def test_a_rule_that_would_be_anyone_s_or_cannot_work_is_refused() -> None:
    for given, error in (
        ({"on": ["comment"]}, "a rule on comments needs their authors"),
        ({"on": ["issue"]}, "a rule on issues needs their authors"),
        ({"assignees": ["acme-bot"]}, r'assignees need on = \["issue"\]'),
    ):
        with pytest.raises(ValueError, match=error):
            TriggerRule.model_validate({"agent": "a", "instructions": "Do."} | given)


class Board:
    """One organization with one repository, and what was decided."""

    def __init__(self, database: Database, *rules: TriggerRule, platform: str = "github") -> None:
        self.database, self.platform = database, platform
        path = "acme/api" if platform == "github" else "acme/tools"
        made = Repository("api", platform, path, "/srv/api.git", triggers=rules)
        self.owner = organization(database, "acme")
        with database.write() as connection:
            repositories.put(connection, self.owner, made, now_micros())
        settings = {"triggers": {"github_secret_env": "S"}, "gitlab": {"webhook_secret_env": "S"}}
        self.receiver = Receiver(database, Settings.model_validate(settings), now_micros)
        self.count = 0

    def deliver(self, found: HookEvent | None, own: str = "") -> tuple[str, str]:
        self.count += 1
        key, accounts = f"d{self.count}", {self.owner: frozenset({own})}
        made = WebhookDelivery(self.platform, key, present(found), frozenset({"S"}), None, accounts)
        (decision,) = self.receiver.receive(made)
        return decision.result, decision.detail

    def runs(self) -> list[str]:
        with self.database.read() as connection:
            return [one.run_id or "" for one in deliveries.latest(connection, 99, result="started")]

    def end(self, pushed: str | None = None) -> None:
        with self.database.write() as connection:
            turn = present(turns.claim(connection, self.runs()[-1], 1, "w", now_micros()))
            outcome = turns.TurnOutcome("completed", commit_sha=pushed)
            turns.end(connection, turn.run_id, 1, outcome, now_micros())


def test_a_comment_starts_one_run_whoever_delivers_it(database: Database) -> None:
    """Also if two webhooks tell of it; an author that is not allowed, a bot and the service itself start none."""
    board = Board(database, ON_COMMENT)
    ask = f"{ASK} the login"
    given = [
        board.deliver(commented(ask)),
        board.deliver(commented(ask)),
        board.deliver(commented(ask, id=502)),
        board.deliver(commented(ask, id=503, sender="mallory")),
        board.deliver(commented(ask, id=505, sender_type="Bot")),
        board.deliver(commented(ask, id=506), own="dora"),
        board.deliver(commented(ask, id=507, action="edited")),
    ]
    with database.read() as connection:
        turn = turns.of(connection, board.runs()[0])[0]

    assert given == [
        ("started", ""),
        ("repeated", "reviewer has had this comment by this rule"),
        ("started", ""),
        ("ignored", "reviewer: mallory is not among its authors"),
        ("ignored", "reviewer: done by a bot"),
        ("own", "done by the service's own account"),
        ("ignored", "the comment was edited: only a new one counts"),
    ]
    assert "Review it.\n\ndora asks: On src/app.py, line 3: the login\n\n(pull request #7" in turn.instructions
    words = "On src/app.py, line 3: the login"
    assert turn.inputs["comment"] == {"author": "dora", "command": "review", "words": words}


def test_a_push_ends_what_it_started_and_not_what_a_person_asked_for(database: Database) -> None:
    """Nor does a comment end anything; an older change is late whatever was asked meanwhile."""
    board = Board(database, TriggerRule(agent="reviewer", instructions="Look.", on=("opened", "pushed")), ON_COMMENT)

    def change(action: str, sha: str, at: int) -> HookEvent | None:
        return event("pull_request", github(action, sha, at=at))

    board.deliver(change("opened", "1" * 40, 1))
    board.deliver(commented(ASK, "1" * 40))
    board.deliver(change("synchronize", "2" * 40, 2))
    with database.read() as connection:
        still_open = turns.open_runs(connection, board.runs())

    assert [one in still_open for one in board.runs()] == [False, True, True]
    assert board.deliver(change("synchronize", "3" * 40, 1))[0] == "stale"


def test_a_failed_check_starts_one_run_and_no_endless_chain(database: Database) -> None:
    """Once for a commit and check, one at a time; what the service pushed itself only as often as the rule says."""
    board = Board(database, ON_FAILED)

    def failed(sha: str, name: str = "test", **given: Any) -> tuple[str, str]:
        return board.deliver(event("check_run", github_check(sha, name, **given)))

    first = [failed("1" * 40), failed("1" * 40), failed("1" * 40, "lint")]
    board.end("2" * 40)
    again = [failed("1" * 40, "lint", head_sha="2" * 40, at=1), failed("2" * 40, at=1)]
    board.end("3" * 40)
    last = failed("3" * 40, at=2)
    by_a_person = failed("4" * 40, at=3)

    assert first == [
        ("started", ""),
        ("repeated", "reviewer has had this check of this commit by this rule"),
        ("own", "reviewer is at work on this commit"),
    ]
    assert again == [("ignored", f"the pull request is at {'2' * 12} by now"), ("started", "")]
    assert last == ("own", "the service pushed this commit (own_commits = 1)")
    assert by_a_person == ("started", "")


def test_the_code_host_is_asked_for_what_a_delivery_leaves_out(desk: Desk) -> None:
    """The head, its target and whether it is a fork's; of the organization's own host."""
    rules = {"triggers": [ON_COMMENT.model_dump(), ON_FAILED.model_dump()]}
    entry = RepositoryEntry.model_validate(desk.place | {"name": "r", "protected": []} | rules)
    with desk.database.write() as connection:
        owner = present(organizations.by_id(connection, desk.owner_id))
        add_repository(connection, owner, entry, Path("/"), desk.now)
    made = desk.server.add("agent/fix-1", "main", "Fix")
    sha = made.head
    if desk.platform == "github":
        name, document = "issue_comment", github_comment(ASK, number=made.number, path=desk.path)
    elif desk.platform == "forgejo":
        name, document = "action_run_failure", forgejo_run(sha, f"#{made.number}")
        document["run"]["repository"]["full_name"] = desk.path.lower()
    else:
        name, document = "Pipeline Hook", gitlab_pipeline(sha, "agent/fix-1")
        document["project"]["path_with_namespace"] = desk.path

    def ask() -> HookEvent:
        found = present(event(name, document, desk.platform))
        return present(completed(desk.database, desk.platform, found).get(desk.owner_id))

    whole = ask()
    made.is_fork = True
    fork = ask()
    made.is_fork, made.state = False, "closed"
    closed = ask().fault
    desk.server.before = lambda _: Respond(404, {"message": "Not Found"})
    away = ask().fault

    assert (whole.number, whole.head_sha, whole.base, whole.head) == (made.number, sha, "main", "agent/fix-1")
    assert (whole.is_fork, whole.is_whole, whole.fault) == (False, True, "")
    assert fork.is_fork or fork.fault == "there is no open pull request"
    assert closed == "there is no open pull request"
    assert away.startswith("the pull request cannot be read: ")
