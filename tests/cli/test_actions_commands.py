"""The ledger on the command line: what became of each write, and what a person says of it."""

from tests.answers import CREATE, EXECUTION, ORGANIZATION, RUN, posts
from tests.cli.conftest import CommandLine
from tests.fault_server import Drop, FaultServer, Hang, Respond


def test_an_unknown_outcome_blocks_the_email_until_a_person_says_what_became_of_it(
    faulty: CommandLine, server: FaultServer
) -> None:
    """One POST on the wire, then none, until it is resolved."""
    server.script(Drop())
    unknown = faulty(*CREATE)
    action_id = unknown.json()["action_id"]

    again = faulty("orgs", "create", "new.admin@EXAMPLE.com", "--json")

    assert (unknown.code, again.code, len(posts(server))) == (6, 6, 1)
    error = again.json()["error"]
    assert (error["kind"], error["action_id"]) == ("blocked", action_id)
    assert f"runwarden actions resolve {action_id}" in error["message"]

    resolved = faulty("actions", "resolve", action_id[:12], "--not-created", "--json")
    server.script(Respond(201, ORGANIZATION))
    after = faulty(*CREATE)

    assert (resolved.code, resolved.json()["state"]) == (0, "not_created")
    assert (after.code, after.json()["organization"], len(posts(server))) == (0, ORGANIZATION, 2)


def test_a_person_can_link_what_an_unknown_write_made(faulty: CommandLine, server: FaultServer) -> None:
    """It then counts as created, and a second word on it is refused."""
    server.script(Drop())
    action_id = faulty(*CREATE).json()["action_id"]

    linked = faulty("actions", "resolve", action_id, "--created", "org_9", "--json")
    twice = faulty("actions", "resolve", action_id, "--not-created", "--json")

    assert (linked.code, linked.json()["state"]) == (0, "confirmed")
    assert linked.json()["organization"] == {"organization_id": "org_9"}
    assert faulty("orgs", "list", "--json").json()["organizations"][0]["organization_id"] == "org_9"
    assert (twice.code, twice.json()["error"]["kind"]) == (2, "wrong_state")


def test_sending_again_needs_the_email_typed(faulty: CommandLine, server: FaultServer) -> None:
    """As an option or on stdin; anything else sends nothing."""
    server.script(Drop(), Drop(), Respond(201, ORGANIZATION))
    first = faulty(*CREATE).json()["action_id"]
    resolve = ("actions", "resolve", "--send-again", "--json")

    unconfirmed = faulty(*resolve, first)
    mistyped = faulty(*resolve, first, "--confirm", "old.admin@example.com")
    sent = len(posts(server))
    second = faulty(*resolve, first, "--confirm", "new.admin@example.com")
    third = faulty(*resolve, second.json()["action_id"], stdin="new.admin@example.com\n")

    assert [unconfirmed.code, mistyped.code, sent] == [2, 2, 1]
    assert unconfirmed.json()["error"]["expected"] == "new.admin@example.com"
    assert (second.code, second.json()["state"]) == (6, "unknown")
    assert (third.code, third.json()["organization"], len(posts(server))) == (0, ORGANIZATION, 3)
    assert len(set(posts(server))) == 1
    shown = faulty("actions", "show", first, "--json").json()["action"]
    assert (shown["resolution"], shown["superseded_by"]) == ("sent_again", second.json()["action_id"])


def test_a_key_whose_write_had_no_effect_sends_again(faulty: CommandLine, server: FaultServer) -> None:
    """A person said that nothing was done: the same command line does it now."""
    server.script(Drop(), Respond(201, ORGANIZATION))
    unknown = faulty(*CREATE, "--key", "k1").json()["action_id"]
    resolved = faulty("actions", "resolve", unknown, "--not-created", "--json")

    again = faulty(*CREATE, "--key", "k1")

    assert (resolved.code, resolved.json()["state"]) == (0, "not_created")
    assert "error" not in resolved.json()
    assert (again.code, again.json()["state"], len(posts(server))) == (0, "confirmed", 2)


def test_read_only_resolves_nothing(faulty: CommandLine, server: FaultServer) -> None:
    """A person's word on an outcome changes the ledger, which is precious."""
    server.script(Drop())
    unknown = faulty(*CREATE).json()["action_id"]

    for word in (["--not-created"], ["--created", "org_7"], ["--send-again", "--confirm", "new.admin@example.com"]):
        result = faulty("actions", "resolve", unknown, *word, "--read-only", "--json")
        assert (result.code, result.json()["error"]["kind"]) == (2, "read_only"), word

    assert faulty("actions", "show", unknown, "--json").json()["action"]["state"] == "unknown"
    assert len(posts(server)) == 1


def test_a_process_that_is_killed_leaves_an_unknown_action_behind(faulty: CommandLine, server: FaultServer) -> None:
    """The next command finds it."""
    server.script(Hang())
    process = faulty.begin(*CREATE)
    server.wait_for(1)

    process.kill()
    process.communicate(timeout=300)

    [action] = faulty("actions", "list", "--json").json()["actions"]
    assert (action["state"], action["error"]["kind"]) == ("unknown", "crashed")
    assert len(posts(server)) == 1


def test_candidates_for_a_lost_run_are_proposed(faulty: CommandLine, server: FaultServer) -> None:
    """A named branch makes it certain; a person still decides."""
    server.script(Drop())
    start = faulty("runs", "start", "-R", "acme/api", "--branch", "agent/x", "go", "--json").json()
    server.script(Respond(200, {"runs": [RUN], "page_size": 100, "next_token": None, "total_count": 1}))

    shown = faulty("actions", "show", start["action_id"], "--candidates", "--json").json()

    assert (start["state"], shown["certain"]) == ("unknown", True)
    assert [run["run_id"] for run in shown["candidates"]] == ["run_1"]


def test_fields_nobody_knows_are_printed_as_received(faulty: CommandLine, server: FaultServer) -> None:
    """The service may say more than the spec."""
    server.script(Respond(201, {**RUN, "cost": {"tokens": 3}}), Respond(200, {**EXECUTION, "queue": 1}))

    run = faulty("runs", "start", "-R", "acme/api", "go", "--json")
    execution = faulty("agents", "start", "nightly", "-R", "acme/api", "--json")

    assert run.json()["run"] == {**RUN, "cost": {"tokens": 3}}
    assert execution.json()["execution"] == {**EXECUTION, "queue": 1}


def test_the_ledger_is_filtered_by_state_and_kind(faulty: CommandLine, server: FaultServer) -> None:
    """Newest first."""
    server.script(Drop(), Respond(201, RUN))
    faulty(*CREATE)
    faulty("runs", "start", "-R", "acme/api", "go")

    def kinds(*arguments: str) -> list[str]:
        return [action["kind"] for action in faulty("actions", "list", *arguments, "--json").json()["actions"]]

    assert kinds() == ["run.start", "organization.create"]
    assert kinds("--state", "unknown") == ["organization.create"]
    assert kinds("--kind", "run.start") == ["run.start"]
    assert kinds("--limit", "1") == ["run.start"]


def test_an_action_nobody_knows_is_not_found(lone: CommandLine) -> None:
    """Exit code 7."""
    for arguments in (["show", "act_x"], ["resolve", "act_x", "--not-created"], ["resolve", "act_x", "--send-again"]):
        result = lone("actions", *arguments, "--json")
        assert (result.code, result.json()["error"]["kind"]) == (7, "not_found")
