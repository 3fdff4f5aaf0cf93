"""`runs events` prints each change of status once, whichever process saw it."""

import json
import signal
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from storage.values import utc_now
from tests.cli.conftest import CommandLine
from tests.lab import Lab, Respond


def events(command_line: CommandLine, *options: str) -> list[dict[str, Any]]:
    result = command_line("runs", "events", *options)
    assert result.code == 0, result
    return [json.loads(line) for line in result.out.splitlines()]


def moves(found: list[dict[str, Any]]) -> list[tuple[str, str | None, str]]:
    return [(each["run_id"], each["from"], each["to"]) for each in found]


def test_each_change_is_printed_once_after_the_cursor(boarded: CommandLine, lab: Lab) -> None:
    """Changes that other commands saw count.

    Before the first poll, ended runs are history and active ones are not, on every page.
    """
    lab.put("run_0", "completed", created=0)
    lab.put("run_1", "working", created=1)
    lab.largest_page = 1
    lab.put("run_x", "queued", created=-1)
    start = boarded("runs", "events", "--since", "now", "--json").json()
    lab.put("run_2", "queued", created=2)
    boarded("runs", "list")
    lab.move("run_2", "working", updated=3)
    lab.move("run_1", "completed", updated=4)

    found = events(boarded, "--since", start["cursor"])
    lab.move("run_2", "failed", updated=5)
    later = events(boarded, "--since", found[-1]["cursor"])
    again, everything = events(boarded, "--since", found[0]["cursor"]), events(boarded)

    assert (start["events"], start["count"]) == ([], 0)
    about = {"run_id": "run_2", "repository": "acme/api", "branch_name": "main", "from": None, "to": "queued"}
    assert found[0] == about | {"cursor": found[0]["cursor"], "at": "2026-05-01T12:02:00.000000Z"}
    assert moves(found[1:]) == [("run_2", "queued", "working"), ("run_1", "working", "completed")]
    assert moves(later) == [("run_2", "working", "failed")]
    assert moves(everything[:2]) == [("run_1", None, "working"), ("run_x", None, "queued")]
    assert (again, everything[2:]) == ([*found[1:], *later], [*found, *later])
    assert len({each["cursor"] for each in (*found, *later)}) == 4


def test_following_resumes_after_a_kill_while_others_poll(boarded: CommandLine, lab: Lab) -> None:
    """No change is lost or printed twice, whether this process, a bot or none polled in between."""
    lab.put("run_1", "queued", created=1)
    cursor = boarded("runs", "events", "--since", "now", "--json").json()["cursor"]
    seen: list[dict[str, Any]] = []
    for at, status in enumerate(("working", "queued", "working", "completed"), 2):
        following = boarded.begin("runs", "events", "--follow", "--json", "--since", cursor)
        lab.move("run_1", status, updated=at)
        boarded("watch", "--once")
        seen.append(json.loads(following.stdout.readline()))
        cursor = seen[-1]["cursor"]
        following.kill()
        following.communicate(timeout=120)

    states = ["queued", "working", "queued", "working", "completed"]
    assert moves(seen) == [("run_1", *pair) for pair in pairwise(states)]
    assert events(boarded, "--since", cursor) == []


def test_a_cancelled_run_is_never_followed_as_a_failure(boarded: CommandLine, lab: Lab) -> None:
    """The service first lists a cancelled run as failed and shows elsewhere that it was cancelled.

    A signal stops following without an error.
    """
    lab.put("run_1", "working", created=1)
    lab.otherwise = lambda asked: (
        Respond(200, {"questions": [], "cancelled": ["run_1"]})
        if asked.path.endswith("questions")
        else lab.answer(asked)
    )
    cursor = boarded("runs", "events", "--json").json()["cursor"]
    following = boarded.begin("runs", "events", "--follow", "--since", cursor)
    lab.move("run_1", "failed", updated=2)

    first = json.loads(following.stdout.readline())
    following.send_signal(signal.SIGTERM)
    out, err = following.communicate(timeout=120)
    how = err.strip().splitlines()[-1].removeprefix("Stopped. Continue with: runwarden ").split()

    assert moves([first]) == moves(events(boarded, "--since", cursor)) == [("run_1", "working", "cancelled")]
    assert (following.returncode, out) == (143, "")
    assert how[-4:] == ["events", "--follow", "--since", first["cursor"]]


def test_a_bad_cursor_and_a_service_outage_are_reported(boarded: CommandLine, lab: Lab) -> None:
    """The error gives the fix, and events from before it are still printed."""
    lab.put("run_1", "working", created=1)
    boarded("runs", "events")
    lab.move("run_1", "completed", updated=2)
    found = events(boarded)
    refused = boarded("runs", "events", "--since", "x.1", "--json")
    table = boarded("runs", "events", "--follow", "--output", "table")
    down = boarded("runs", "events", RUNWARDEN_TOKEN="")
    lab.refused["token-for-tests"] = 401
    document = boarded("runs", "events", "--json")

    assert (refused.code, refused.json()["error"]["cursor"]) == (7, "x.1")
    assert (
        "Leave out --since to print what is kept, and compare with: runwarden runs list"
        in refused.json()["error"]["message"]
    )
    assert (table.code, "use --output ndjson or csv" in table.err, down.code) == (2, True, 2)
    assert (document.code, document.json()["events"]) == (4, found)
    assert document.json()["error"]["kind"] == "not_authorized"


FIRST: dict[str, list[str]] = {
    "a filtered list": ["list", "--status", "failed"],
    "a wait": ["wait", "run_2"],
    "an empty service": ["list"],
}


@pytest.mark.parametrize("first", FIRST)
def test_the_first_answer_separates_old_runs_from_events(boarded: CommandLine, lab: Lab, first: str) -> None:
    """A run that starts and finishes between two commands is an event, though nothing polled; older runs are not."""
    if first != "an empty service":
        lab.put("run_0", "completed", created=0)
        lab.put("run_1", "failed", created=1)
        lab.put("run_2", "completed", created=2)
    boarded("runs", *FIRST[first])
    lab.put("run_3", "failed", created=utc_now() + timedelta(minutes=1))
    boarded("runs", "list")

    assert moves(events(boarded)) == [("run_3", None, "failed")]
