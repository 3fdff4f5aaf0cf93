import json
import signal

import pytest

from tests.cli.conftest import CREATE, CommandLine
from tests.lab import EXECUTION, ORGANIZATION, RUN, Drop, Hang, Lab, Raw, Received, Respond, Server, Step


def test_an_extension_that_is_not_offered_is_unknown_or_reported(faulty: CommandLine, server: Server) -> None:
    """The invitation shows as neither sent nor waiting; a service that is down is noted; `--cached` asks nothing."""
    server.script(Respond(201, ORGANIZATION))
    faulty("orgs", "create", "ada@example.com")
    plain = faulty("orgs", "list")
    asked = len(server.requests)
    cached = faulty("orgs", "list", "--cached")
    server.script(Respond(503, {}))
    down = faulty("orgs", "list")
    agents = faulty("agents", "list", "--json")

    assert [(one.code, "  unknown  " in one.out) for one in (plain, cached, down)] == [(0, True)] * 3
    assert (plain.err, "are unknown" in down.err) == ("", True)
    assert asked == 2
    assert faulty("orgs", "resend", "ada@example.com").code == 7
    assert (agents.code, agents.json()["error"]["kind"]) == (7, "not_offered")


def test_a_named_agent_takes_instructions(faulty: CommandLine, server: Server) -> None:
    """The input `instructions` may be given once. JSON inputs are sent as JSON."""
    server.script(Respond(201, EXECUTION), Respond(201, EXECUTION))
    start = ("agents", "start", "nightly", "-R", "acme/api", "--json")
    twice = faulty(*start, "Fix it", "--input", "instructions=x").json()["error"]

    assert faulty(*start, "Fix", "it", "--input", "a=1", "b=x").code == 0
    assert server.requests[-1].path.endswith("/external/agents/nightly/runs")
    assert json.loads(server.posts[0])["inputs"] == {"a": 1, "b": "x", "instructions": "Fix it"}
    assert "not both" in twice["message"]
    assert faulty(*start, "a=1").json()["error"]["kind"] == "usage"
    assert faulty("runs", "start", "-R", "acme/api", "--agent", "nightly", "Fix it", "--json").code == 0
    assert json.loads(server.posts[1])["inputs"] == {"instructions": "Fix it"}


@pytest.mark.parametrize(
    ("step", "code", "state", "kind"),
    [
        (Respond(429, {"message": "slow down"}, {"Retry-After": "3"}), 5, "rejected", "rate_limited"),
        (Respond(401, {"message": "who?"}), 4, "rejected", "not_authorized"),
        (Respond(409, {"message": "The run is at work.", "error_code": "run_active"}), 2, "rejected", "rejected"),
        (Respond(500, {"message": "half done"}), 6, "unknown", "server_failed"),
        (Respond(201, {}), 6, "unknown", "unusable_answer"),
        (Raw(b"HTTP/1.1 201 Created\r\nContent-Length: 500\r\n\r\n{", "reset"), 6, "unknown", "unreachable"),
    ],
)
def test_each_answer_to_a_write_has_its_exit_code(
    faulty: CommandLine, server: Server, step: Respond | Raw, code: int, state: str, kind: str
) -> None:
    """Each write prints its document and where it was sent, on stderr if the output is for people."""
    server.script(step, step)

    result = faulty(*CREATE)
    shown = faulty("orgs", "create", "other@example.com")

    document = result.json()
    assert (result.code, document["state"], document["error"]["kind"]) == (code, state, kind)
    assert (document["organization"], document["base_url"], result.err) == (None, faulty.base_url, "")
    assert document["action_id"]
    assert shown.err.splitlines()[0] == f"Writing to {faulty.base_url} (profile environment)."
    assert len(server.posts) == 2


def test_a_signal_during_a_write_reports_it_unknown(faulty: CommandLine, server: Server, lone: CommandLine) -> None:
    """If nothing listens, nothing is sent. A started run is reported even if waiting for it fails."""
    server.script(Respond(201, RUN), Respond(401, {"message": "expired"}), Hang())
    started = faulty("runs", "start", "-R", "acme/api", "--wait", "--json", "Review")
    process = faulty.begin(*CREATE)
    server.wait_for(3)

    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    unsent = [lone(*CREATE, RUNWARDEN_DATA_DIR=str(lone.home / "other")) for _ in range(2)]

    document, run = json.loads(out), started.json()
    assert (started.code, run["error"]["kind"], run["state"]) == (4, "not_authorized", "confirmed")
    assert (run["run"]["run_id"], bool(run["action_id"])) == ("run_1", True)
    assert (process.returncode, document["state"], document["error"]["kind"]) == (143, "unknown", "interrupted")
    assert faulty(*CREATE).code == 6
    assert [(each.code, each.json()["state"]) for each in unsent] == [(8, "not_sent")] * 2


def test_a_write_refused_locally_has_the_same_document(faulty: CommandLine, server: Server) -> None:
    """Scripts read the same fields, even if the request was refused before sending."""
    server.script(Drop())
    assert faulty(*CREATE).code == 6
    for arguments, code, kind, field in (
        (CREATE, 6, "organization.create", "organization"),
        (("orgs", "create", "nobody", "--json"), 2, "organization.create", "organization"),
        (("--read-only", "runs", "start", "-R", "acme/api", "go", "--json"), 2, "run.start", "run"),
        (("runs", "continue", "run_1", "--key", "", "go", "--json"), 2, "run.continue", "run"),
        (("gitlab", "onboard", "9" * 5000, "--key", " ", "--json"), 2, "gitlab.onboard", "project"),
    ):
        refused = faulty(*arguments)
        document = refused.json()
        assert (refused.code, document["action_id"], document["state"]) == (code, None, "not_sent"), arguments
        assert (document["kind"], document["base_url"], document[field]) == (kind, None, None)
        assert document["warnings"] == []
        assert document["error"]["message"]
        if document["error"]["kind"] == "invalid":
            assert [problem["field"] for problem in document["error"]["problems"]] == ["email"]
        assert (document["error"]["kind"] == "read_only") == ("--read-only" in arguments)
    assert len(server.posts) == 1


def test_a_continuation_waits_for_an_active_run(faulty: CommandLine, server: Server) -> None:
    """A bot sends it once. Cancelling the run warns that it drops it."""
    lab = Lab()
    lab.put("run_1", "working", created=1)

    def answer(request: Received) -> Step:
        if request.method == "GET":
            return lab.answer(request)
        return Respond(202 if request.path.endswith("/cancel") else 201, lab.runs["run_1"])

    server.otherwise = answer
    continued = ("runs", "continue", "run_1", "--when-ended", "--json", "Go \x1b[31mon.\nThen test.")

    waiting, again = faulty(*continued), faulty(*continued)
    (dropped,) = faulty("runs", "cancel", "run_1", "--json", "--dry-run").json()["warnings"]
    assert (waiting.code, waiting.json()["state"], waiting.json()["waiting"]["run_id"]) == (0, "waiting", "run_1")
    assert (again.json(), server.posts) == (waiting.json(), [])
    assert dropped == "If the run is cancelled, its waiting continuation is dropped, too: “Go ␛[31mon.”."
    lab.put("run_1", "completed", created=1, updated=2)
    faulty("watch", "--once")
    sent = faulty("actions", "list", "--json").json()["actions"]
    at_once = faulty(*continued).json()

    assert [(action["kind"], action["state"]) for action in sent] == [("run.continue", "confirmed")]
    assert (at_once["state"], [b"Then test." in body for body in server.posts]) == ("confirmed", [True, True])
    assert faulty(*continued, "--wait").json()["error"]["kind"] == "usage"
