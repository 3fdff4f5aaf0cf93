import json
import signal
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import AsyncMock

import pytest

from storage.errors import StorageError
from storage.ledger import Ledger
from storage.records import Action
from tests.cli.conftest import CommandLine, Inside
from tests.lab import ORGANIZATION, Drop, Hang, Received, Respond, Server, Step
from tests.service_process import start_service


def creating(request: Received) -> Step:
    """An organization for every request."""
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


def test_an_import_stops_at_an_unknown_outcome_and_goes_on_when_it_is_resolved(
    faulty: CommandLine, server: Server, file: Path
) -> None:
    """Exit code 6; no email is ever sent twice without a person's word."""
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


def test_a_refused_row_does_not_stop_the_others(faulty: CommandLine, server: Server, file: Path) -> None:
    """Exit code 2; the row may be tried again, corrected. What every row would suffer stops them all."""
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


def test_an_interrupted_import_tells_how_far_it_came(faulty: CommandLine, server: Server, file: Path) -> None:
    """Exit code 130, and every row accounted for."""
    server.script(creating(Received("POST", "/", {}, b'{"email": "a@example.com"}')), Hang())
    process = faulty.begin("orgs", "import", str(file), "--json")
    server.wait_for(2)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)

    assert process.returncode == 130
    assert [row["outcome"] for row in json.loads(out)["rows"]] == ["created", "unknown", "not_tried"]


def test_a_file_with_a_mistake_sends_nothing_at_all(faulty: CommandLine, server: Server, file: Path) -> None:
    """Everything is checked before the first row is sent. A list may come on stdin; mistakes name the stream."""
    for content, said in (
        (b"a@example.com\n", "columns"),
        (b"email\n", "no row"),
        (b"\n", "is empty"),
        (b"email\na@example.com\nnobody\n", "Line 3"),
        (b"email\na@example.com\nA@Example.com\n", "line 2 already"),
        (b"email\n\xff@example.com\n", "UTF-8"),
        (b"email;offer_code\na@example.com;P\n", "partners.csv:1: the columns are separated by semicolons"),
        (b"email,offer_code\n\na@example.com;P\n", "Line 3: The cells are separated by semicolons"),
        (b"email\na@example.com,PARTNER\n", "Line 2: There are more cells than columns"),
        (b'email\n"a@example.com\n', "partners.csv"),
    ):
        file.write_bytes(content)
        result = faulty("orgs", "import", str(file), "--json")
        assert (result.code, said in result.json()["error"]["message"]) == (2, True), content
    missing = faulty("orgs", "import", "missing.csv", "--json")
    assert (missing.code, "missing.csv" in missing.json()["error"]["message"]) == (2, True)
    wrong = faulty("orgs", "import", "-", "--json", stdin="email\nnobody\n")
    assert (wrong.code, wrong.json()["error"]["message"].partition(".")[0]) == (2, "stdin: nothing was sent")
    assert server.requests == []

    # Below the token, where that comes the same way.
    server.otherwise = creating
    done = faulty("orgs", "import", "-", "--token-stdin", "--json", stdin="typed\nemail\na@example.com\n")
    assert (done.code, done.json()["outcomes"], emails(server)) == (0, {"created": 1}, {"a@example.com": 1})
    assert server.requests[0].headers["authorization"] == "Bearer typed"


def test_an_import_that_is_killed_twice_makes_each_organization_once(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """40 rows. After each kill a person looks up what became of the row on its way, and starts the import again."""
    own = start_service(tmp_path / "service")
    request.addfinalizer(own.stop)
    rows, chance = [f"row{n}@example.com" for n in range(40)], Random(9)
    (tmp_path / "many.csv").write_text("\n".join(["email", *rows]))
    command = Inside(tmp_path, own.base_url, own.admin_token)
    for _ in range(2):
        process = command.begin("orgs", "import", "many.csv", "--json")
        for _ in range(chance.randint(2, 12)):
            while "  created " not in (line := process.stderr.readline()):
                assert line
        process.kill()
        process.communicate()
        # What the service has taken in is done before it ends: nothing happens after the look.
        own.stop()
        made = {each["email"]: each["organization_id"] for each in own.admin("invitation", "list")["invitations"]}
        for action in command("actions", "list", "--state", "unknown", "--json").json()["actions"]:
            organization = made.get(action["subject"])
            word = ["--not-created"] if organization is None else ["--created", organization]
            assert command("actions", "resolve", action["action_id"], *word).code == 0
        own.restart()

    done = command("orgs", "import", "many.csv", "--json")

    assert (done.code, len(done.json()["rows"])) == (0, 40)
    invited = Counter(each["email"] for each in own.admin("invitation", "list")["invitations"])
    assert invited == Counter(rows)


def test_the_ledger_decides_when_a_row_is_entered(
    faulty: CommandLine, server: Server, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the look before it; if it fails, the rows that were sent are told all the same."""
    server.otherwise = creating
    faulty("orgs", "create", "a@example.com")
    prepare, prepared = Ledger.prepare, []

    async def failing(ledger: Ledger, **entry: Any) -> Action:
        prepared.append(entry)
        if len(prepared) > 2:
            raise StorageError("The disk is gone.", path=file)
        return await prepare(ledger, **entry)

    monkeypatch.setattr(Ledger, "organizations", AsyncMock(return_value=()))
    monkeypatch.setattr(Ledger, "prepare", failing)
    result = faulty("orgs", "import", str(file), "--json")

    assert (result.code, [row["outcome"] for row in result.json()["rows"]]) == (2, ["already_created", "created"])
    assert result.json()["error"]["message"] == "The disk is gone."
    assert emails(server) == {"a@example.com": 1, "b@example.com": 1}
