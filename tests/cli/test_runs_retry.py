"""`runs retry` sends failed runs once more, once for each failure."""

import json
import re
from dataclasses import dataclass, field

import pytest

from tests.cli.conftest import CommandLine, outcomes
from tests.lab import Drop, Lab, Received, Respond, Server, Step
from tests.pty.terminal import Terminal

RETRY = ("runs", "retry", "--yes", "--json")


@dataclass
class Works:
    """A service that puts starts and continuations on a lab, where the test finishes them."""

    lab: Lab = field(default_factory=Lab)
    refuse: dict[str, Step] = field(default_factory=dict)
    """Answers for certain instructions, instead of the usual one."""

    def __call__(self, request: Received) -> Step:
        if request.method == "GET":
            return self.lab.answer(request)
        body = request.json()
        if step := self.refuse.get(body["instructions"]):
            return step
        run_id = body.get("run_id", f"run_{len(self.lab.runs)}")
        self.end(run_id, "queued", updated=50)
        return Respond(201, self.lab.runs[run_id])

    def end(self, run_id: str, status: str, *, updated: float) -> None:
        """Finish a run."""
        self.lab.put(run_id, status, created=int(run_id.removeprefix("run_")), updated=updated)


@pytest.fixture
def works(server: Server) -> Works:
    server.otherwise = works = Works()
    return works


def failed(faulty: CommandLine, works: Works, count: int) -> list[str]:
    """The ids of runs that were started here and failed."""
    run_ids = [f"run_{number}" for number in range(count)]
    for number, run_id in enumerate(run_ids):
        faulty("runs", "start", "-R", "acme/api", f"Task {number}")
        works.end(run_id, "failed", updated=60)
    return run_ids


def test_a_failed_run_is_retried_once_with_the_same_body(faulty: CommandLine, server: Server, works: Works) -> None:
    """A second call reports that it was done; a new failure or another key is sent."""
    own = faulty("runs", "start", "-R", "acme/api", "--branch", "b/{action}", "--metadata", "n=1", "One", "--json")
    faulty("runs", "start", "-R", "acme/web", "Two")
    works.end("run_1", "completed", updated=60)
    faulty("runs", "continue", "run_1", "Two, next")
    for run_id in ("run_0", "run_1"):
        works.end(run_id, "failed", updated=70)
    first = server.posts

    result = faulty(*RETRY, "run_0", "run_1")
    again = faulty(*RETRY, "run_0", "run_1")

    assert (result.code, outcomes(result)) == (0, {"run_0": "sent", "run_1": "sent"})
    # A start with a client-chosen id gets a new one.
    renamed = first[0].decode().replace(own.json()["action_id"], result.json()["rows"][0]["action_id"])
    assert [json.loads(body) for body in server.posts[3:]] == [json.loads(renamed), json.loads(first[2])]
    assert [row["result_id"] for row in result.json()["rows"]] == ["run_2", "run_1"]
    assert (again.code, outcomes(again)) == (2, {"run_0": "sent_before", "run_1": "refused"})
    works.end("run_1", "failed", updated=80)
    assert outcomes(faulty(*RETRY, "run_0", "run_1")) == {"run_0": "sent_before", "run_1": "sent"}
    assert outcomes(faulty(*RETRY, "run_0", "--key", "k")) == {"run_0": "sent"}
    assert outcomes(faulty(*RETRY, "run_0", "--key", "k")) == {"run_0": "sent_before"}
    assert faulty("actions", "list", "--limit", "1", "--json").json()["actions"][0]["key"] == "k-run_0"


def test_each_run_that_cannot_be_retried_has_a_reason(faulty: CommandLine, server: Server, works: Works) -> None:
    """The others are still sent, with a warning if the code host is down; the exit code covers the rest."""
    for number, status in enumerate(["failed", "completed", "working"]):
        faulty("runs", "start", "-R", "acme/api", f"Task {number}")
        works.end(f"run_{number}", status, updated=60)
    works.lab.put("run_8", "failed", created=8)
    works.lab.health = {"github": {"status": "down"}}
    faulty("health")
    before = len(server.posts)

    result = faulty(*RETRY, "run_0", "run_1", "run_2", "run_8", "run_9")

    assert "Code host github is down: what is retried now may fail again." in result.err
    assert re.search(r"retried as +run_4", faulty("runs", "view", "run_0").out)
    problems = {row["run_id"]: row["problem"] for row in result.json()["rows"]}
    assert (result.code, result.json()["outcomes"]) == (2, {"sent": 1, "refused": 4})
    said = {"run_1": "completed", "run_2": "not ended", "run_8": "not sent from this machine", "run_9": "has no run"}
    assert all(words in problems[run_id] for run_id, words in said.items()), problems
    assert len(server.posts) == before + 1


def test_the_batch_stops_at_a_fault_that_every_run_would_have(
    faulty: CommandLine, server: Server, works: Works
) -> None:
    """After a refusal of one run the batch continues.

    After an unknown outcome it stops, and the next call does not resend it.
    """
    ids = failed(faulty, works, 4)
    works.refuse = {"Task 0": Respond(400, {"message": "no"}), "Task 2": Drop()}

    stopped = faulty(*RETRY, *ids, "--wait")
    works.refuse = {}
    resumed = faulty(*RETRY, *ids)

    assert (stopped.code, list(outcomes(stopped).values())) == (6, ["rejected", "sent", "unknown", "not_tried"])
    assert (resumed.code, list(outcomes(resumed).values())) == (6, ["sent", "sent_before", "unknown", "sent"])
    bodies = [json.loads(body)["instructions"] for body in server.posts[4:]]
    assert sorted(bodies) == ["Task 0", "Task 0", "Task 1", "Task 2", "Task 3"]


def test_nothing_is_retried_without_consent(faulty: CommandLine, server: Server, works: Works) -> None:
    """A terminal gets one question for all runs; a dry run asks nothing and prints the requests."""
    (faulty.home / "c.toml").write_text("[console]\nsend_cap = 1\n")
    failed(faulty, works, 2)
    before = len(server.posts)

    unasked = faulty("runs", "retry", "run_0", "--json")
    dry = faulty("runs", "retry", "run_0", "run_1", "--dry-run", "--json")
    assert (unasked.code, unasked.json()["error"]["kind"]) == (2, "not_confirmed")
    assert (dry.code, dry.json()["outcomes"]) == (0, {"to_send": 2})
    assert [row["request"]["body"]["instructions"] for row in dry.json()["rows"]] == ["Task 0", "Task 1"]
    assert len(server.posts) == before

    argv = ("--config", str(faulty.home / "c.toml"), "runs", "retry", "run_0", "run_1")
    terminal = Terminal(argv, faulty.environment)
    terminal.wrote(b"Retry 2 runs, 1 at a time? [y/N]")
    terminal.press("y\r")
    assert (terminal.end(), len(server.posts)) == (0, before + 2)


def test_waiting_ends_when_all_runs_ended(faulty: CommandLine, server: Server, works: Works) -> None:
    """A second call waits for the runs that the first one sent, until the time limit."""
    failed(faulty, works, 2)
    works.end("run_0", "completed", updated=61)
    faulty("runs", "continue", "run_0", "Next")
    works.end("run_0", "failed", updated=62)
    wait = (*RETRY, "run_0", "run_1", "--key", "k", "--wait")

    late = faulty(*wait, "--timeout", "0")
    works.end("run_0", "completed", updated=70)
    works.end("run_2", "completed", updated=70)
    done = faulty(*wait)

    error = late.json()["error"]
    assert (late.code, error["kind"], error["run_ids"]) == (3, "waited_too_long", ["run_0", "run_2"])
    assert [row["run"]["status"] for row in late.json()["rows"]] == ["queued", "queued"]
    assert (done.code, outcomes(done)) == (2, {"run_0": "refused", "run_1": "sent_before"})
    assert done.json()["rows"][1]["run"]["status"] == "completed"


def test_retrying_a_colleagues_run_uses_the_services_words(faulty: CommandLine, server: Server, works: Works) -> None:
    """The words come from the service, not from this machine's ledger. If it cannot be asked, nothing is sent."""
    faulty("runs", "start", "-R", "acme/api", "Mine")
    for updated, status in enumerate(("completed", "working", "failed"), 60):
        works.end("run_0", status, updated=updated)
        faulty("runs", "list")
    given = {"depth": 2, "instructions": "Look"}
    mine, theirs = {"number": 1, "instructions": "Mine"}, {"number": 2, "instructions": "x", "caller": "ann"}
    works.lab.turns = {
        "run_0": {"turns": [mine, theirs]},
        "run_1": {"agent": "audit", "turns": [{"number": 1, "instructions": "Look (2)", "inputs": given}]},
        "run_2": {"turns": [{"number": 1, "instructions": "Fix it", "caller": "bob"}]},
        "run_3": {"turns": [{"number": 1, "instructions": "Asked by a stranger", "caller": "webhook"}]},
        "run_4": {"turns": [{"number": 1}]},
    }
    for run_id in [*works.lab.turns][1:]:
        works.end(run_id, "failed", updated=60)
    retry, answer = ("runs", "retry", "--json", "--dry-run"), works.lab.answer

    result = faulty(*retry, *works.lab.turns)
    works.lab.answer = lambda request: Drop() if "run_0" in request.path else answer(request)  # type: ignore[method-assign]
    (lost,) = faulty(*retry, "run_0").json()["rows"]

    rows = {row["run_id"]: row for row in result.json()["rows"]}
    sent = {run_id: row["request"] and row["request"]["body"] for run_id, row in rows.items()}
    assert [row["asked_by"] for row in rows.values()] == ["ann", None, "bob", "webhook", None]
    assert (sent["run_0"]["instructions"], sent["run_0"]["run_id"]) == ("x", "run_0")
    assert sent["run_1"] == {"repository": "acme/api", "branch_name": sent["run_1"]["branch_name"], "inputs": given}
    assert rows["run_1"]["request"]["url"].endswith("/external/agents/audit/runs")
    assert (sent["run_2"]["instructions"], "run_id" in sent["run_2"]) == ("Fix it", False)
    assert sent["run_3"]["run_id"] == "run_3", "what an event may do stays as it is"
    assert "does not have it either" in rows["run_4"]["problem"]
    assert (lost["outcome"], "could not be asked" in lost["problem"]) == ("refused", True)
