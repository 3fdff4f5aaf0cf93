"""`--dry-run` prints the request as it would be sent, and sends and records nothing."""

from pathlib import Path

import pytest

from tests.cli.conftest import CREATE, CommandLine
from tests.lab import ORGANIZATION, RUN, Drop, Lab, Respond, Server

WRITES = [
    ("runs", "start", "-R", "acme/api", "--branch", "b", "--metadata", "n=3", "Do\x1b this ä"),
    ("agents", "start", "nightly / x", "-R", "acme/api", "--input", "a=1", "b=x"),
    ("orgs", "create", "A@example.com", "--offer-code", "X"),
]


def ledger(home: Path) -> bytes:
    [file] = (home / "data").rglob("ledger.sqlite3")
    return file.read_bytes()


@pytest.mark.parametrize("write", WRITES, ids=" ".join)
def test_a_dry_run_prints_what_the_command_sends(boarded: CommandLine, lab: Lab, write: tuple[str, ...]) -> None:
    """The output has the method, address, headers and body with the token masked; the ledger is unchanged."""
    lab.put("run_1", "completed")
    boarded("runs", "list")
    before, count = ledger(boarded.home), len(lab.requests)

    dry = boarded(*write, "--dry-run", "--json", RUNWARDEN_TOKEN="")
    table, csv = (boarded(*write, "--dry-run", "-o", form) for form in ("table", "csv"))
    assert (dry.code, table.code, csv.code) == (0, 0, 0)
    assert (ledger(boarded.home), len(lab.requests)) == (before, count)
    assert boarded(*write, "--json").code == 0

    sent, document = lab.requests[-1], dry.json()
    request = document["request"]
    assert (request["method"], request["url"]) == (sent.method, lab.origin + sent.target)
    assert request["body"] == sent.json()
    assert request["headers"] == {"Authorization": "Bearer ***", "Content-Type": sent.headers["content-type"]}
    assert (document["dry_run"], document["state"], document["action_id"]) == (True, "not_sent", None)
    assert document["base_url"] == boarded.base_url
    assert f"POST {lab.origin}{sent.target}\nAuthorization: Bearer ***\n" in table.out
    assert "\x1b" not in table.out + csv.out
    assert boarded.token not in dry.out + table.out + csv.out
    assert f"Nothing is sent to {boarded.base_url} (profile environment)." in table.err


def test_a_dry_run_fails_like_the_command(faulty: CommandLine, server: Server) -> None:
    """A dry run fails with the same message and exit code; sending again needs no confirmation in it."""
    server.script(Drop(), Respond(201, ORGANIZATION), Respond(201, RUN))
    unknown = faulty(*CREATE).json()["action_id"]
    done = faulty("orgs", "create", "done@example.com", "--json").json()["action_id"]
    again = ("actions", "resolve", unknown, "--send-again", "--dry-run", "--json")
    start = ("runs", "start", "-R", "acme/api", "Go", "--key", "k", "--json")
    started = faulty(*start)
    before, count = ledger(faulty.home), len(server.requests)

    for write, code, kind in [
        (("orgs", "create", "nobody", "--json"), 2, "invalid"),
        (("orgs", "create", "a@example.com", "--read-only", "--json"), 2, "read_only"),
        (CREATE, 6, "blocked"),
        (("orgs", "create", "Done@Example.com", "--json"), 2, "duplicate"),
        ((*start, "again"), 2, "already_asked"),
    ]:
        dry, real = faulty(*write, "--dry-run"), faulty(*write)
        assert (dry.code, dry.json()["error"]["kind"]) == (code, kind)
        assert dry.out == real.out
    assert faulty("orgs", "create", "done@example.com", "--again", "--dry-run").code == 0
    assert faulty(*start, "--dry-run").out == started.out
    assert faulty(*again).json()["request"]["body"] == server.requests[0].json()
    for misused, kind in (((*again[:2], done, *again[3:]), "wrong_state"), ((*again, "--not-created"), "usage")):
        refused = faulty(*misused)
        assert (refused.code, refused.json()["error"]["kind"]) == (2, kind)
    assert (ledger(faulty.home), len(server.requests)) == (before, count)
