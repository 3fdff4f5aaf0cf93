"""From a turn's findings to the review on its pull request, by way of what is to be posted."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.findings.document import IdentifiedFinding, packed
from service.forge.client import ForgeError
from service.forge.handlers import Subject
from service.forge.review import post_review
from service.store import turn_files
from service.store.postings import Posting
from service.store.runs import Run
from tests.fault_server import Drop, Received
from tests.service.forge.conftest import client_of
from tests.service.forge.desk import Desk
from tests.service.forge.github import GitHubServer
from tests.service.forge.gitlab import GitLabForge
from tests.service.forge.test_review import PROPOSAL, Pull, finding, is_write

Server = GitHubServer | GitLabForge
FOUND = finding("a", 1)


@pytest.fixture
def desk(forge: Server, tmp_path: Path) -> Iterator[Desk]:
    """A desk on each forge in turn, with an agent that reviews."""
    made = Desk(forge, tmp_path, {"pull_request": "draft", "review": True})
    with contextlib.closing(made.database):
        yield made


def report(desk: Desk, run_id: str, number: int, *found: IdentifiedFinding) -> None:
    """Keep what a turn found, as the worker does before the turn ends."""
    with desk.database.write() as connection:
        kept = packed("a" * 40, found)
        turn_files.put(connection, (run_id, number), 1, turn_files.FINDINGS, kept)


def test_findings_become_a_review_once_whatever_is_lost(desk: Desk) -> None:
    """After the pull request, and though no answer to a write ever comes; the next turn closes what is gone."""
    run_id = desk.begin()
    report(desk, run_id, 1, FOUND, finding("d", None, "other.py"))
    desk.end(run_id)
    lost = 0

    def lose(received: Received) -> Drop | None:
        nonlocal lost
        lost += is_write(received)
        return Drop() if is_write(received) else None

    desk.server.after = lose
    for _ in range(12):
        desk.post()
        desk.later(901)
    first = (desk.posting(run_id, "review").state, lost)
    desk.server.after = lambda _: None
    pull = Pull(desk.server, "fixer")
    states, bodies = pull.states, pull.bodies
    desk.next_turn(run_id, "Go on")
    report(desk, run_id, 2)
    desk.end(run_id, "c" * 40, 2)
    desk.post()

    assert first[0] == "posted"
    assert first[1] < 5, "what is there is not posted again"
    assert (states, len(bodies)) == ("A", 1)
    assert f"[{run_id}](https://runs.example/{run_id}), turn 1." in bodies[0]
    assert (pull.states, [one.partition(".")[0] for one in pull.bodies]) == ("a", ["`fixer` found nothing"])


def test_a_turn_that_failed_or_found_nothing_to_say_posts_no_review(desk: Desk) -> None:
    """Without findings as such there is none to ask for."""
    failed, silent = desk.begin(), desk.begin()
    report(desk, failed, 1, FOUND)
    desk.end(failed, None, status="failed", failure="x")
    desk.end(silent)
    desk.post()

    with pytest.raises(ValueError, match="unpack"):
        desk.posting(failed, "review")
    with pytest.raises(ValueError, match="unpack"):
        desk.posting(silent, "review")


def subject(commit: str, attempts: int = 1, **run: Any) -> Subject:
    wanted = {"commit": commit, "findings": [FOUND.model_dump()]}
    posting = Posting("run_1", "review", "", 1, wanted, 1, "waiting", attempts, 0, 0, None, None, None)
    made = Run("run_1", "o", "fixer", "completed", "agent/fix-1", "github", "acme/api", "", 1, 0, 0, **run)
    return Subject(posting, made, [], "main", None, lambda text: text)


def test_a_review_waits_for_its_pull_request_and_gives_way_to_a_newer_head(forge: Server) -> None:
    """None yet, and a push not heard of: again soon. Moved on, or closed: said, and left alone."""
    client = client_of(forge)
    with pytest.raises(ForgeError, match="has no pull request yet") as waiting:
        post_review(client, subject("b" * 40))
    number = client.open(PROPOSAL).number
    with pytest.raises(ForgeError, match="was reviewed") as early:
        post_review(client, subject("c" * 40))
    late = post_review(client, subject("c" * 40, attempts=7))
    stale = post_review(client, subject("c" * 40, attempts=7, head_ref=f"refs/merge-requests/{number}/head"))
    of_head = post_review(client, subject("b" * 40, head_ref=f"refs/pull/{number}/head", head_sha="b" * 40))
    reviewed = len(client.threads(number))
    for one in forge.pulls if isinstance(forge, GitHubServer) else forge.merge_requests:
        one["state"] = "closed"
    closed = post_review(client, subject("b" * 40))

    assert [(one.value.is_final, one.value.status) for one in (waiting, early)] == [(False, 404), (False, 409)]
    assert all("was reviewed" in (one.note or "") for one in (late, stale))
    assert (of_head.note, reviewed) == (None, 1)
    assert "is closed, and was not reviewed" in (closed.note or "")
