import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from storage.errors import StorageError
from storage.ledger import Ledger
from storage.records import Action
from tests.cli.conftest import CommandLine
from tests.lab import ORGANIZATION, Drop, Hang, Received, Respond, Server, Step


def creating(request: Received) -> Step:
    """A server that creates an organization for every request."""
    body = request.json()
    assert isinstance(body, dict)
    name = str(body["email"])
    return Respond(201, ORGANIZATION | {"organization_id": f"org_{name}", "organization_name": name})


def emails(server: Server) -> Counter[str]:
    return Counter(str(json.loads(request.body)["email"]) for request in server.requests)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "partners.csv"
    path.write_text("\ufeffEmail, Offer code\na@example.com,PARTNER\n\n b@example.com ,\nc@example.com,\n", "utf-8")
    return path


def test_an_import_stops_at_an_unknown_outcome_until_it_is_resolved(
    faulty: CommandLine, server: Server, file: Path
) -> None:
    """Exit code 6; no email is sent a second time before a user resolves the outcome."""
    server.otherwise = creating
    server.script(creating(Received("POST", "/", {}, b'{"email": "a@example.com"}')), Drop())

    stopped = faulty("orgs", "import", str(file), "--json")
    blocked = faulty("orgs", "import", str(file), "--json")

    assert stopped.code == 6
    assert [row["outcome"] for row in stopped.json()["rows"]] == ["created", "unknown", "not_tried"]
    assert [row["outcome"] for row in blocked.json()["rows"]] == ["already_created", "blocked", "created"]
    assert blocked.code == 6

    faulty("actions", "resolve", stopped.json()["rows"][1]["action_id"], "--not-created")
    done = faulty("orgs", "import", str(file), "--json")

    assert (done.code, done.json()["outcomes"]) == (0, {"already_created": 2, "created": 1})
    assert emails(server) == {"a@example.com": 1, "b@example.com": 2, "c@example.com": 1}


def test_a_dry_run_shows_only_the_requests_left(faulty: CommandLine, server: Server, file: Path) -> None:
    """A row whose organization was created before has none."""
    server.otherwise = creating
    faulty("orgs", "create", "a@example.com")

    shown = faulty("orgs", "import", str(file), "--dry-run")

    assert (shown.code, shown.out.count("POST http")) == (0, 2)
    assert emails(server) == {"a@example.com": 1}


def test_an_import_may_continue_past_a_failure_that_all_rows_have(
    faulty: CommandLine, server: Server, file: Path
) -> None:
    """With --past all rows are sent once, their outcomes unknown; a failure with another code still stops it."""
    failure = Respond(500, {"message": "exists without mail", "error_code": "provisioning_failed"})
    server.script(failure, failure, failure)

    result = faulty("orgs", "import", str(file), "--past", "provisioning_failed", "--json")
    server.script(Respond(500, {"message": "failed", "error_code": "other"}))
    file.write_text("email\nd@example.com\ne@example.com\n")
    other = faulty("orgs", "import", str(file), "--past", "provisioning_failed", "--json")

    assert (result.code, result.json()["outcomes"]) == (6, {"unknown": 3})
    assert (other.code, other.json()["outcomes"]) == (6, {"unknown": 1, "not_tried": 1})
    assert set(emails(server).values()) == {1}


def test_a_refused_row_does_not_stop_the_others(faulty: CommandLine, server: Server, file: Path) -> None:
    """Exit code 2; the corrected row may be imported again. An error that every row would get stops the import."""
    server.otherwise = creating
    for step, code in ((Respond(429, {"message": "slow"}), 5), (Respond(403, {"message": "no"}), 4)):
        server.script(step)
        result = faulty("orgs", "import", str(file), "--json", RUNWARDEN_DATA_DIR=str(faulty.home / str(code)))
        outcomes = [row["outcome"] for row in result.json()["rows"]]
        assert (result.code, outcomes) == (code, ["rejected", "not_tried", "not_tried"])
    assert len(server.requests) == 2
    server.script(Respond(400, {"message": "no such offer", "error_code": "invalid_offer_code"}))

    first = faulty("orgs", "import", str(file), "--json")
    second = faulty("orgs", "import", str(file), "--json")

    assert (first.code, [row["outcome"] for row in first.json()["rows"]]) == (2, ["rejected", "created", "created"])
    assert first.json()["rows"][0]["error"]["error_code"] == "invalid_offer_code"
    assert (second.code, second.json()["rows"][0]["outcome"]) == (0, "created")


def test_an_interrupted_import_reports_every_row(faulty: CommandLine, server: Server, file: Path) -> None:
    """Exit code 130, with the outcome of every row."""
    server.script(creating(Received("POST", "/", {}, b'{"email": "a@example.com"}')), Hang())
    process = faulty.begin("orgs", "import", str(file), "--json")
    server.wait_for(2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)

    assert process.returncode == 130
    assert [row["outcome"] for row in json.loads(out)["rows"]] == ["created", "unknown", "not_tried"]


def test_a_file_with_a_mistake_sends_nothing(faulty: CommandLine, server: Server, file: Path) -> None:
    """The whole file is checked before the first row is sent.

    The list may come from stdin, and errors then name stdin.
    """
    for content, said in (
        (b"a@example.com\n", "columns"),
        (b"email\na@example.com\nnobody\n", "Line 3"),
        (b"email\na@example.com\nA@Example.com\n", "line 2 already"),
        (b"email\n\xff@example.com\n", "UTF-8"),
        (b"email\na@example.com,PARTNER\n", "Line 2: There are more cells than columns"),
    ):
        file.write_bytes(content)
        result = faulty("orgs", "import", str(file), "--json")
        assert (result.code, said in result.json()["error"]["message"]) == (2, True), content
    wrong = faulty("orgs", "import", "-", "--json", stdin="email\nnobody\n")
    assert (wrong.code, wrong.json()["error"]["message"].partition(".")[0]) == (2, "stdin: nothing was sent")
    assert server.requests == []


def test_an_import_that_is_killed_twice_makes_each_organization_once(faulty: CommandLine, server: Server) -> None:
    """Each organization is created once, even if the import is killed during one write and before another.

    A user resolves both, and starts the import again.
    """
    rows, made = [f"row{n}@example.com" for n in range(12)], Counter[str]()
    (faulty.home / "many.csv").write_text("\n".join(["email", *rows]))

    def answer(request: Received) -> Step:
        number = len(server.requests)
        if number != 7:
            made[str(json.loads(request.body)["email"])] += 1
        if number in {3, 7}:
            process.kill()
        return creating(request)

    server.otherwise = answer
    for _ in range(2):
        process = faulty.begin("orgs", "import", "many.csv", "--json")
        process.communicate()
        [action] = faulty("actions", "list", "--state", "unknown", "--json").json()["actions"]
        email = action["subject"]
        word = ["--created", f"org_{email}"] if made[email] else ["--not-created"]
        assert faulty("actions", "resolve", action["action_id"], *word, "--force").code == 0

    done = faulty("orgs", "import", "many.csv", "--json")

    assert (done.code, len(done.json()["rows"])) == (0, 12)
    assert made == Counter(rows)


def test_the_ledger_is_checked_again_at_each_row(
    faulty: CommandLine, server: Server, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger is checked again at each row; if it fails, the outcomes of the rows already sent are still printed."""
    server.otherwise = creating
    faulty("orgs", "create", "a@example.com")
    prepare, prepared = Ledger.prepare, []

    async def failing(ledger: Ledger, entry: Action, **more: Any) -> Action:
        prepared.append(entry)
        if len(prepared) > 2:
            raise StorageError("The disk is gone.", path=file)
        return await prepare(ledger, entry, **more)

    monkeypatch.setattr(Ledger, "organizations", AsyncMock(return_value=()))
    monkeypatch.setattr(Ledger, "prepare", failing)
    result = faulty("orgs", "import", str(file), "--json")

    assert (result.code, [row["outcome"] for row in result.json()["rows"]]) == (2, ["already_created", "created"])
    assert result.json()["error"]["message"] == "The disk is gone."
    assert emails(server) == {"a@example.com": 1, "b@example.com": 1}
