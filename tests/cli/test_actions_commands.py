"""The ledger on the command line: the outcome of each write, and how a user resolves an unknown one."""

import json
import sqlite3
from contextlib import closing

from tests.cli.conftest import CREATE, CommandLine
from tests.lab import ORGANIZATION, RUN, Drop, Received, Respond, Server, Step


def test_a_person_can_link_what_an_unknown_write_made(faulty: CommandLine, server: Server) -> None:
    """The id must be known to the service and belong to the address.

    A second answer and a read-only profile are refused.
    """

    def invited(name: str, email: str) -> dict[str, object]:
        return {"invitation_id": f"inv_{name}", "organization_id": f"org_{name}", "email": email, "state": "sent"}

    told = [invited("made", "New.Admin@example.com"), invited("other", "eve@example.com")]
    server.script(Drop())
    action_id = faulty(*CREATE).json()["action_id"]
    server.otherwise = lambda _: Respond(200, {"invitations": told})
    resolve = ("actions", "resolve", action_id[:12], "--json")
    words = ("--not-created", "--created org_made", "--send-again --confirm new.admin@example.com")

    candidates = faulty("actions", "show", action_id, "--candidates", "--json").json()["candidates"]
    kept = [faulty(*resolve, *word.split(), "--read-only") for word in words]
    errors = [faulty(*resolve, "--created", each).json()["error"] for each in ("org_nonsense", "org_other")]
    linked, twice = faulty(*resolve, "--created", "org_made"), faulty(*resolve, "--not-created")
    shown = faulty("actions", "show", action_id, "--json").json()["action"]

    assert [each["organization_id"] for each in candidates] == ["org_made"]
    assert [(each.code, each.json()["error"]["kind"]) for each in kept] == [(2, "read_only")] * 3
    assert [each["kind"] for each in errors] == ["doubtful_id"] * 2
    assert errors[0]["message"] == "The service knows no organization org_nonsense."
    assert "was created for eve@example.com" in errors[1]["message"]
    assert (linked.code, linked.json()["state"]) == (0, "confirmed")
    assert linked.json()["organization"] == {"organization_id": "org_made"}
    assert faulty("orgs", "list", "--json").json()["organizations"][0]["organization_id"] == "org_made"
    person = f"{shown['user']}@{shown['host']}"
    assert (shown["resolved_by"], shown["resolved_at"] > shown["settled_at"]) == (person, True)
    assert f"resolved   {shown['resolved_at']} by {person}" in faulty("actions", "show", action_id).out
    assert (twice.code, twice.json()["error"]["kind"]) == (2, "wrong_state")


def test_sending_again_needs_the_email_typed(faulty: CommandLine, server: Server) -> None:
    """Sending again requires the email as an option or on stdin; with anything else, nothing is sent."""
    server.script(Drop(), Drop(), Respond(201, ORGANIZATION))
    first = faulty(*CREATE).json()["action_id"]
    resolve = ("actions", "resolve", "--send-again", "--json")

    unconfirmed = faulty(*resolve, first)
    mistyped = faulty(*resolve, first, "--confirm", "old.admin@example.com")
    sent = len(server.posts)
    second = faulty(*resolve, first, "--confirm", "new.admin@example.com")
    third = faulty(*resolve, second.json()["action_id"], stdin="new.admin@example.com\n")

    assert [unconfirmed.code, mistyped.code, sent] == [2, 2, 1]
    assert unconfirmed.json()["error"]["expected"] == "new.admin@example.com"
    assert (second.code, second.json()["state"]) == (6, "unknown")
    assert (third.code, third.json()["organization"], len(server.posts)) == (0, ORGANIZATION, 3)
    assert len(set(server.posts)) == 1
    shown = faulty("actions", "show", first, "--json").json()["action"]
    assert (shown["resolution"], shown["superseded_by"]) == ("sent_again", second.json()["action_id"])


def test_a_message_is_only_resolved_with_its_own_id(faulty: CommandLine, server: Server) -> None:
    """A message is resolved with its own id, which the run's list of messages shows."""
    messages = [{"message_id": f"msg_{number}", "text": text} for number, text in enumerate(("hello", "other"))]
    detail = {**RUN, "status": "working", "turns": [{"number": 1, "messages": messages}]}

    def answer(request: Received) -> Step:
        if request.method == "POST":
            return Drop()
        return Respond(200, detail if request.path.endswith(RUN["run_id"]) else {"runs": [detail]})

    server.otherwise = answer
    action_id = faulty("runs", "say", RUN["run_id"], "hello", "--json").json()["action_id"]
    resolve = ("actions", "resolve", action_id, "--json", "--created")
    doubted = [faulty(*resolve, made).json()["error"]["kind"] for made in ("msg_NOPE", "msg_1")]

    assert doubted == ["doubtful_id"] * 2
    assert faulty(*resolve, "msg_0").json()["state"] == "confirmed"


def test_an_id_that_does_not_look_right_needs_force_and_a_mistake_can_be_undone(
    faulty: CommandLine, server: Server
) -> None:
    """Without --force, an id must look like an organization's, and belong to no other creation or cached run."""
    server.script(Respond(200, {"runs": [{**RUN, "run_id": "run_2"}]}), Respond(201, ORGANIZATION), Drop())
    faulty("runs", "list", "--json")
    faulty(*CREATE)
    action_id = faulty("orgs", "create", "eve@example.com", "--json").json()["action_id"]
    resolve = ("actions", "resolve", action_id, "--json")

    for doubtful, said in (
        ("hello", "does not look like an organization's id. This service lists no organizations."),
        ("org_1", "org_1 is what act_"),
        ("run_2", "is a run's id"),
    ):
        error = faulty(*resolve, "--created", doubtful).json()["error"]
        assert (error["kind"], said in error["message"]) == ("doubtful_id", True)
    forced = faulty(*resolve, "--created", "hello", "--force")
    undone = faulty(*resolve, "--undo")
    right = faulty(*resolve, "--created", "org_2")

    assert (forced.code, forced.json()["organization"]) == (0, {"organization_id": "hello"})
    assert (undone.code, undone.json()["state"]) == (0, "unknown")
    assert (right.code, right.json()["organization"]) == (0, {"organization_id": "org_2"})


ADA = ("ada", "desk", "console", "console:ada")


def test_an_export_says_who_did_what_when_and_where_to(faulty: CommandLine, server: Server) -> None:
    """Exports in each format, newest first, have no token, and a spreadsheet executes none of their cells."""
    server.script(Respond(201, RUN), Respond(201, ORGANIZATION))
    faulty("runs", "start", "-R", "acme/api", "=1+1")
    [ledger] = (faulty.home / "data").rglob("ledger.sqlite3")
    with closing(sqlite3.connect(ledger)) as connection, connection:
        change = "UPDATE actions SET created_us = ?, user = ?, host = ?, surface = ?, actor = ?"
        connection.execute(change, (10**15, *ADA))
    faulty(*CREATE)
    lines = [json.loads(line) for line in faulty("actions", "export").out.splitlines()]
    table = faulty("actions", "export", "-o", "csv", "--kind", "run.start").out
    told = faulty("actions", "export", "--json", "--out", "audit.json")

    made, started = lines
    for options, found in (
        (("--actor", "ada@desk"), [started]),
        (("--actor", "ad"), []),
        (("--surface", "command"), [made]),
        (("--from", "2001-09-09", "--to", "2001-09-09T01:46:40Z"), [started]),
        (("--kind", "run.start", "--state", "unknown"), []),
    ):
        listed = faulty("actions", "list", *options, "--json").json()["actions"]
        assert faulty("actions", "export", *options, "--json").json()["actions"] == found, options
        assert listed == [{name: each[name] for name in each if name != "steps"} for each in found], options
    assert (made["surface"], made["base_url"], made["state"]) == ("command", faulty.base_url, "confirmed")
    assert [step["step"] for step in made["steps"]] == ["prepared", "sending", "confirmed"]
    assert {(step["user"], step["host"]) for step in made["steps"]} == {(made["user"], made["host"])}
    file = faulty.home / "audit.json"
    assert json.loads(file.read_text()) == {"actions": lines, "count": 2}
    assert (told.out, told.err.strip()) == ("", "2 actions written to audit.json")
    assert ",'=1+1," in table
    assert (faulty.token in file.read_text(), file.stat().st_mode & 0o777) == (False, 0o600)
