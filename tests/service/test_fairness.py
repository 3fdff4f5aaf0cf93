"""Places: organizations take turns at them, and what is cancelled gives its place back."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.clock import now_micros
from service.store import turns
from service.store.database import Database
from service.store.dispatch import next_turns
from service.store.turns import TurnOutcome
from tests.service.conftest import BOTH, Api, accepted, organization
from tests.service_process import demo_setup, git
from tests.waiting import eventually

PATIENT = """
import json, pathlib, sys, time
task = json.load(sys.stdin)
gate = pathlib.Path(task["inputs"]["gate"])
while not gate.exists(): time.sleep(0.05)
pathlib.Path("done").write_text("x")
"""


class Queue:
    """Accepted turns of organizations with a letter each, and what is dispatched of them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.owners: dict[str, str] = {}
        self.under_way: list[tuple[str, int]] = []

    def accept(self, name: str, count: int, branch: str | None = None) -> None:
        self.owners[organization(self.database, name.lower(), now_micros())] = name
        for _ in range(count):
            accepted(self.database, name.lower(), now=now_micros(), branch=branch)

    def dispatch(self, places: int, share: int | None = None, ended: int = 0) -> str:
        """End so many turns, and return the organizations that get places then."""
        with self.database.write() as connection:
            for _ in range(ended):
                turns.end(connection, *self.under_way.pop(0), TurnOutcome("completed"), now_micros())
            found = next_turns(connection, places, share)
            keys = [(turn.run_id, turn.number) for turn in found]
            if keys:
                turns.mark_dispatched(connection, keys, now_micros())
        self.under_way += keys
        return "".join(sorted(self.owners[turn.organization_id] for turn in found))


@BOTH
def test_organizations_take_turns_however_much_one_of_them_asked_for(database: Database) -> None:
    """The only run of the second does not wait for two hundred of the first; of one branch only one run is queued."""
    queue = Queue(database)
    queue.accept("A", 200)
    queue.accept("B", 1)
    queue.accept("C", 2)

    assert queue.dispatch(4) == "AABC"
    assert queue.dispatch(4) == ""
    assert queue.dispatch(4, ended=1) == "A", "all have as many, and it waits longest"
    assert queue.dispatch(4, ended=1) == "C", "of those that wait, it has the fewest"
    queue.accept("D", 50, branch="same")
    queue.accept("D", 1)
    assert queue.dispatch(12).count("D") == 2


@BOTH
def test_one_place_is_left_for_others_where_there_are_any(database: Database) -> None:
    """Who comes later finds it free; who is alone uses all of them; a share that is set holds."""
    queue = Queue(database)
    queue.accept("A", 9)
    assert queue.dispatch(3) == "AAA"
    queue.accept("B", 0)
    assert queue.dispatch(3, ended=3) == "AA"
    queue.accept("B", 1)
    assert queue.dispatch(3) == "B"
    assert queue.dispatch(6, share=1, ended=1) == ""


@pytest.fixture
def shared(start: Callable[..., Api], tmp_path: Path) -> Callable[[str], Api]:
    """`shared(name)` is the client of an organization, Acme or Other, on a service with two places."""
    setup = demo_setup(tmp_path)
    (tmp_path / "patient.py").write_text(PATIENT, "utf-8")
    setup["agents"] += [{"name": "patient", "argv": ["{python}", str(tmp_path / "patient.py")]}]
    setup["organizations"].append(setup["organizations"][0] | {"name": "Other", "slug": "other"})
    api = start(setup=setup, settings='[execution]\nsandbox = "none"\nconcurrency = 2\ndrain_s = 0.1\n')
    by_slug = {one["slug"]: one for one in api.service.setup["organizations"]}
    return lambda slug: Api(api.service, by_slug[slug])


def test_a_cancelled_run_is_failed_leaves_nothing_and_frees_its_place(
    shared: Callable[[str], Api], tmp_path: Path
) -> None:
    """At work, waiting, and by the operator; the next one runs; what has ended cannot be cancelled."""
    acme = shared("acme")
    gate = tmp_path / "gate"
    working, waiting, third = (acme.begin("patient", gate=str(gate)) for _ in range(3))
    acme.reaches(working, "working")
    answers = [acme.post(f"/external/runs/{run_id}/cancel", {}) for run_id in (waiting, working)]
    acme.service.admin("run", "cancel", third)
    eventually(lambda: "interrupted" in acme.log(working), "the agent is interrupted")
    gate.touch()
    last = acme.ended(acme.begin("patient", gate=str(gate)))
    branches = git("branch", "--format=%(refname:short)", cwd=acme.service.repositories["acme/api"]).split()

    assert [(answer.status_code, answer.json()["status"]) for answer in answers] == [(202, "failed")] * 2
    assert last["status"] == "completed"
    assert last["branch_name"] in branches
    assert acme.run(working)["branch_name"] not in branches
    failures = [acme.service.admin("run", run_id)["turns"][0]["failure"] for run_id in (working, third)]
    assert failures == ["cancelled by tests", "cancelled by the operator"]
    again = acme.post(f"/external/runs/{last['run_id']}/cancel", {})
    assert (again.status_code, again.json()["error_code"]) == (409, "run_not_active")
    assert acme.post("/external/runs/unknown%00/cancel", {}).status_code == 404


def test_a_second_tenant_is_served_beside_the_stuck_or_stopped_runs_of_the_first(
    shared: Callable[[str], Api], tmp_path: Path
) -> None:
    """The first has twenty, none of which ends; a deactivated organization's are stopped, at work and waiting."""
    acme, other, gate = shared("acme"), shared("other"), tmp_path / "gate"
    stuck = [acme.begin("patient", gate=str(tmp_path / "never")) for _ in range(20)]
    gate.touch()

    assert other.ended(other.begin("patient", gate=str(gate)))["status"] == "completed"
    assert {acme.run(one)["status"] for one in stuck} == {"working", "queued"}
    working = next(one for one in stuck if acme.run(one)["status"] == "working")
    acme.service.admin("org", "deactivate", "acme")
    eventually(lambda: "interrupted" in acme.log(working), "the agent is interrupted")
    assert other.ended(other.begin("patient", gate=str(gate)))["status"] == "completed"
    for run_id in stuck:
        turn = acme.service.admin("run", run_id)["turns"][0]
        assert (turn["status"], turn["failure"]) == ("failed", "cancelled: the organization was deactivated")


def test_an_organization_has_so_many_active_runs_and_no_more(start: Callable[..., Api], tmp_path: Path) -> None:
    """Exactly, however many are asked for at once; another organization has its own."""
    setup = demo_setup(tmp_path)
    setup["organizations"].append(setup["organizations"][0] | {"name": "Other", "slug": "other"})
    settings = "[limits]\nactive_runs = 3\n"
    api = start(setup=setup, settings=settings, arguments=["--no-worker"])
    acme, other = (Api(api.service, one) for one in api.service.setup["organizations"])
    body = {"repository": "acme/api", "inputs": {"instructions": "wait"}}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: acme.post("/external/agents/scribe/runs", body), range(8)))
    accepted = [answer.json()["execution_id"] for answer in answers if answer.status_code == 201]
    refused = {(answer.status_code, answer.json().get("error_code")) for answer in answers} - {(201, None)}
    other.start("theirs")
    assert acme.post(f"/external/runs/{accepted[0]}/cancel", {}).status_code == 202
    again = acme.follow(accepted[0], "once more")

    assert (len(accepted), refused) == (3, {(400, "too_many_active_runs")})
    assert again.status_code == 201
    assert acme.follow(accepted[1], "beside it").status_code in {400, 409}
    assert len(list(acme.runs(status="queued"))) == 3
