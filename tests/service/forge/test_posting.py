"""A turn's results are posted once after the push, whatever crashes, refuses or changes."""

import os
import signal
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from service.forge import ForgeError
from service.forge.handlers import Subject
from service.forge.review import post_review
from service.store import postings, runs, turn_files
from service.store.postings import Posting
from service.store.runs import Run
from service.store.turns import Turn
from tests.lab import Drop, Received, Respond, Step
from tests.program import Program
from tests.service.forge.conftest import EVERYTHING, ONE_FORGE, Desk
from tests.service.forge.forges import Forge
from tests.service.forge.test_clients import PROPOSAL
from tests.service.forge.test_review import Pull, finding, is_write
from tests.waiting import present

FOUND = finding("a", 1)
OLD, NEW = "a" * 40, "b" * 40
WORKER = """
import sys
from service.forge.poster import post
from service.hosts.tokens import HostTokens
from service.settings import ForgeSettings, Settings
from service.store import dispatch
from service.store.database import Database

database, now = Database(sys.argv[1]), int(sys.argv[2])
with database.read() as connection:
    due = dispatch.due_jobs(connection, now)
for name in due[:1]:
    settings = Settings(forge=ForgeSettings(timeout_s=60))
    post(database, HostTokens(database), settings, lambda: now, name.removeprefix("post:"))
"""


def states(server: Forge) -> list[str]:
    """The statuses next to the old and the new commit, in GitHub's words."""
    words = {"running": "pending", "failed": "failure", "canceled": "error"}
    return [words.get(one, one) for commit in (OLD, NEW) for one in server.shown(commit).values()]


def test_workers_killed_at_any_request_post_once(desk: Desk) -> None:
    """A worker is killed before and after the forge carries out each request; in the end each result is there once."""
    run_id = desk.begin()
    desk.at_work(run_id, OLD)
    desk.report(run_id, 1, FOUND)
    with desk.database.write() as connection:
        postings.want(connection, (run_id, 1), "comment", {"issue": 7}, desk.now)
    desk.end(run_id)
    seen: set[tuple[str, str, str]] = set()
    worker: Any = None

    def kill(when: str) -> Callable[[Received], Step | None]:
        def act(received: Received) -> Step | None:
            point = (when, received.method, received.path)
            if point in seen or not is_write(received):
                return None
            seen.add(point)
            os.kill(worker.pid, signal.SIGKILL)
            return Drop()

        return act

    desk.server.before, desk.server.after = kill("before"), kill("after")
    deaths = 0
    for _ in range(60):
        if not desk.is_owing:
            break
        worker = Program((str(desk.database.url), str(desk.now)), os.environ, code=WORKER)
        _, errors = worker.communicate()
        assert worker.returncode in {0, -signal.SIGKILL}, errors
        deaths += worker.returncode == -signal.SIGKILL

    assert not desk.is_owing
    assert deaths >= 8
    assert len(desk.server.changes) == 1
    assert states(desk.server) == ["success", "success"]
    assert len(desk.server.statuses) == 2, "each commit got its status once"
    assert [desk.posting(run_id, kind).state for kind in ("pull_request", "review", "comment")] == ["posted"] * 3
    assert [one.body.count(desk.server.changes[0].url) for one in desk.server.comments] == [1]
    pull = Pull(desk.server, "fixer")
    assert (pull.states, len(pull.bodies)) == ("A", 1)


@ONE_FORGE
def test_a_status_follows_its_turn(desk: Desk) -> None:
    """The status is pending while the turn works; a change during a posting is posted after it."""
    run_id = desk.begin()
    desk.at_work(run_id, OLD)

    def end_in_between(received: Received) -> None:
        desk.server.after = lambda _: None
        assert "statuses" in received.path
        desk.end(run_id)

    desk.post()
    begun = states(desk.server)
    desk.at_work(run_id, OLD)
    desk.server.after = end_in_between
    desk.post()

    assert begun == ["pending"]
    assert states(desk.server) == ["success", "success"]


@ONE_FORGE
@pytest.mark.parametrize(
    ("limit", "unread", "shown"),
    [
        ("blocker", None, "success"),
        ("major", None, "failure"),
        ("blocker", b"findings.json is not used: no JSON", "error"),
    ],
)
def test_a_status_fails_on_configured_severities(desk: Desk, limit: str, unread: bytes | None, shown: str) -> None:
    """The turn itself completed and its review is posted; unreadable findings do not pass the check."""
    desk.plan(EVERYTHING | {"status": limit})
    run_id = desk.begin()
    if unread is None:
        desk.report(run_id, 1, FOUND.model_copy(update={"severity": "major"}), finding("b", 2))
    else:
        with desk.database.write() as connection:
            turn_files.save(connection, (run_id, 1), 1, turn_files.UNREAD, unread)
    desk.end(run_id)
    desk.post()

    assert states(desk.server) == [shown]
    assert ("found 1 major: Login fixed" in str(desk.server.statuses)) == (shown == "failure")
    assert unread or desk.posting(run_id, "review").state == "posted"


@ONE_FORGE
def test_a_turn_without_a_commit_sets_the_status_of_its_base(desk: Desk) -> None:
    """Failed and cancelled turns leave no commit pending, open and review nothing, and cannot begin again."""
    run_id = desk.begin()
    desk.at_work(run_id, OLD)
    desk.report(run_id, 1, FOUND)
    desk.end(run_id, None, status="failed", summary=None, failure="cancelled by ci")
    desk.at_work(run_id, OLD)
    desk.post()

    assert states(desk.server) == ["error"]
    assert desk.server.changes == []
    with pytest.raises(ValueError, match="unpack"):
        desk.posting(run_id, "review")


@ONE_FORGE
def test_a_pull_request_has_the_runs_words_without_commands(desk: Desk) -> None:
    """A pull request is a draft in the run's words with a link, without mentions, commands or secrets.

    Forges accept 65,536 characters.
    """
    run_id = desk.begin("Fix it, @ann\n/merge")
    acts = ("&#64;all", "&commat;all", "Fixes #12", "![x](https://evil.example/x)", "<details>", "<!--")
    said = "Fixed by @bob (fixes #12)\n/approve\nwith bot-token <!-- /runwarden -->"
    desk.end(run_id, summary="\n".join([said, *acts]))
    ended_at = desk.now
    desk.later(2)
    desk.post()
    (made,) = desk.server.changes
    text, posting = made.body, desk.posting(run_id, "pull_request")
    with desk.database.read() as connection:
        run = present(runs.by_id(connection, run_id))
    for number in range(2, 13):
        desk.next_turn(run_id, "```\n@ann\n```\n" + "&\n" * 1000 if number > 9 else "a\n" * 1000)
        desk.end(run_id, f"{number:040x}", number, summary="&" * 8000)
    desk.post()

    assert (made.title, made.draft) == ("Fixed by @\u200bbob (fixes, see #12)", True)
    assert f"[{run_id}](https://runs.example/{run_id})" in text
    assert "@\u200bann" in text
    assert not [line for line in text.splitlines() if line.lstrip().startswith("/")]
    assert "bot-token" not in text
    assert [one for one in acts if one in text.replace("<!-- ", "")] == []
    assert text.count("<!-- /runwarden -->") == 1
    assert (posting.state, posting.url) == ("posted", made.url)
    assert run.updated_at > ended_at, "clients ask again"
    assert "\n12. ```\n    @ann\n    ```\n" in made.body, "an item ends where its lines are indented less"
    assert len(made.body) < 60_000


@ONE_FORGE
def test_another_turn_updates_only_our_part_of_the_text(desk: Desk) -> None:
    """Title and text around our part belong to users; a text without our marks is all theirs."""
    run_id = desk.begin()
    desk.end(run_id)
    desk.post()
    (made,) = desk.server.changes
    made.body, made.title = f"Please look.\r\n{made.body}Thanks!", "A better title"
    desk.next_turn(run_id, "And the logout")
    desk.end(run_id, "c" * 40, 2, summary="Logout fixed, too")
    desk.post()
    renewed, made.body = made.body, "All mine now"
    desk.next_turn(run_id, "And the rest")
    desk.end(run_id, "d" * 40, 3)
    desk.post()

    assert renewed.startswith("Please look.\n<!-- runwarden")
    assert renewed.endswith("Thanks!")
    assert "Logout fixed, too" in renewed
    assert "2. And the logout" in renewed
    assert (made.title, made.body) == ("A better title", "All mine now")
    assert len(desk.server.changes) == 1


@ONE_FORGE
@pytest.mark.parametrize(("state", "count"), [("closed", 1), ("merged", 2)])
def test_closed_pull_requests_stay_closed(desk: Desk, state: str, count: int) -> None:
    """A later commit reopens no closed pull request; after a merge, a new one is opened."""
    run_id = desk.begin()
    desk.end(run_id)
    desk.post()
    (made,) = desk.server.changes
    made.state = state
    desk.next_turn(run_id, "Go on")
    desk.end(run_id, "c" * 40, 2)
    desk.post()

    assert len(desk.server.changes) == count
    assert ("was not opened again" in (desk.posting(run_id, "pull_request").failure or "")) == (state == "closed")


@ONE_FORGE
@pytest.mark.parametrize(
    ("answer", "rest_s"),
    [(Respond(429, {"message": "slow down"}, {"Retry-After": "90"}), 89), (Drop(), 0)],
    ids=["limit", "away"],
)
def test_a_forges_rate_limit_applies_to_all_postings(desk: Desk, answer: Step, rest_s: int) -> None:
    """One request learns of it and the others wait as long, then all is posted. A refused request is not repeated."""
    due = [desk.begin(branch=f"agent/{at}") for at in range(3)]
    desk.server.before = lambda _: answer
    for at, run_id in enumerate(due):
        desk.end(run_id, f"{at}" * 40, branch=f"agent/{at}")
    asked = []
    for seconds in (0, rest_s, 900):
        desk.later(seconds)
        desk.post()
        asked.append(len(desk.server.asked))
        desk.server.before = lambda _: None

    assert asked[:2] == [1, 1]
    assert {desk.posting(one, "pull_request").state for one in due} == {"posted"}
    desk.server.before = lambda one: Respond(422, {"message": "Never"}) if one.method == "POST" else None
    refused = desk.begin(branch="agent/refused")
    desk.end(refused, "9" * 40, branch="agent/refused")
    desk.post()
    before = len(desk.server.asked)
    desk.later(100_000)
    desk.post()
    posting = desk.posting(refused, "pull_request")
    assert (posting.state, "Never" in (posting.failure or ""), len(desk.server.asked)) == ("refused", True, before)


@ONE_FORGE
def test_a_posting_waits_for_missing_configuration(desk: Desk) -> None:
    """The token goes to no other host; the posting is made once everything is configured, or dropped after a day."""
    early, late = desk.begin(), desk.begin()
    desk.connect(host="elsewhere.example")
    desk.end(early)
    desk.post()
    told = desk.posting(early, "pull_request")
    desk.connect()
    desk.later(901)
    desk.post()
    desk.connect(token_env="FORGE_TOKEN_UNSET")
    desk.end(late)
    for _ in range(4):
        desk.post()
        desk.later(40_000)
    late_told = desk.posting(late, "pull_request")

    assert (told.state, "is on no connected host" in (told.failure or "")) == ("waiting", True)
    assert desk.posting(early, "pull_request").state == "posted"
    assert (late_told.state, "has no token" in (late_told.failure or "")) == ("refused", True)


@ONE_FORGE
@pytest.mark.parametrize("change", [{}, {"state": "closed"}, {"state": "merged"}, {"branch": "moved"}])
def test_the_same_change_opens_no_second_pull_request(desk: Desk, change: dict[str, str]) -> None:
    """The later run links the first one's pull request, unless it is closed or has changed by now."""
    first = desk.begin(branch="agent/first")
    desk.end(first, "1" * 40, branch="agent/first", tree_sha="7" * 40)
    desk.later(1)
    desk.post()
    opened = desk.server.changes[0]
    if "branch" in change:
        desk.server.branches["agent/first"] = "2" * 40
    opened.state = change.get("state", "open")
    second = desk.begin(branch="agent/second")
    desk.report(second, 1, FOUND)
    desk.end(second, "3" * 40, branch="agent/second", tree_sha="7" * 40)
    desk.post()
    linked, reviewed = desk.posting(second, "pull_request"), desk.posting(second, "review")
    desk.later(1)
    desk.next_turn(second, "Do it in another way")
    desk.end(second, "4" * 40, 2, branch="agent/second", tree_sha="8" * 40)
    desk.post()

    assert {linked.state, reviewed.state} == {"posted"}
    said = f"the same change is in pull request {opened.number} of the run {first}"
    assert (linked.url == opened.url, said in str(linked.failure)) == (not change, not change)
    assert len(desk.server.changes) == 2
    assert (reviewed.url, bool(desk.server.threads)) == (linked.url, bool(change))
    assert desk.posting(second, "pull_request").url == desk.server.changes[1].url


@ONE_FORGE
def test_the_earlier_of_two_equal_runs_opens_the_pull_request(desk: Desk) -> None:
    """The other waits for it; if it fails, the other opens its own, which both then use."""
    due = []
    for at in range(2):
        due.append(desk.begin(branch=f"agent/{at}"))
        desk.end(due[at], f"{at}" * 40, branch=f"agent/{at}", tree_sha="7" * 40)
        desk.later(1)
    desk.server.before = lambda one: Respond(500, {}) if one.method == "POST" and b"agent/0" in one.body else None
    desk.post_run(due[1])
    waits = desk.posting(due[1], "pull_request")
    desk.later(900)
    desk.post()
    failing = desk.posting(due[0], "pull_request")
    desk.server.before = lambda _: None
    desk.later(900)
    desk.post()
    linked, opened = (desk.posting(one, "pull_request") for one in due)

    assert (waits.state, f"waits for the run {due[0]}" in str(waits.failure)) == ("waiting", True)
    assert [one.branch for one in desk.server.changes] == ["agent/1"]
    assert [one.state for one in (failing, linked, opened)] == ["waiting", "posted", "posted"]
    assert f"of the run {due[1]}; none was opened" in str(linked.failure)


def subject(commit: str, attempts: int = 1, **run: Any) -> Subject:
    wanted = {"commit": commit, "findings": [FOUND.model_dump()]}
    posting = Posting("run_1", "review", "", 1, wanted, 1, "waiting", attempts, 0, 0, None, None, None)
    made = Run("run_1", "o", "fixer", "completed", "agent/fix-1", "github", "acme/api", "", 1, 0, 0, **run)
    turn = Turn(**{one.name: None for one in fields(Turn)} | {"number": 1, "agent": "other"})
    return Subject(posting, made, [turn], "main", None, lambda text: text)


def test_a_review_waits_for_its_pull_request(forge: Forge) -> None:
    """Without one, it is tried again soon; if the pull request has moved on or is closed, that is recorded."""
    client = forge.client()
    with pytest.raises(ForgeError, match="has no pull request yet") as waiting:
        post_review(client, subject("b" * 40))
    number = client.open(**PROPOSAL).number
    stale = post_review(client, subject("c" * 40, attempts=7, head_ref=f"refs/merge-requests/{number}/head"))
    of_head = post_review(client, subject("b" * 40, head_ref=f"refs/pull/{number}/head", head_sha="b" * 40))
    told = "".join(one.body for one in forge.reviews)
    forge.changes[0].state = "closed"
    closed = post_review(client, subject("b" * 40))

    assert (waiting.value.is_final, waiting.value.status) == (False, 404)
    assert "was reviewed" in (stale.note or "")
    assert (of_head.note, len(forge.threads)) == (None, 1)
    assert "Run `run_1`, turn 1, by `other` in place of `fixer`." in told
    assert "is closed, and was not reviewed" in (closed.note or "")
