"""History on demand: as many runs as wanted, the same for the same seed, and gone when the lab is reset."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

import httpx

UNTIL = "2025-06-01T00:00:00Z"


def order(lab: Any, **fields: Any) -> httpx.Response:
    return lab.post("/runs", {"organization": "acme", "runs": 250, "until": UNTIL, "span": "10d"} | fields)


def listed(lab: Any) -> list[dict[str, Any]]:
    """Return the made-up runs, newest first."""
    return list(lab.api.runs(date_to=UNTIL))


def test_history_is_listed_like_any_other(lab: Any) -> None:
    """The wanted number of runs, within the span, ended, newest first, on several repositories."""
    answer = order(lab)
    found = listed(lab)

    assert (answer.status_code, answer.json()["runs"]) == (201, 250)
    assert len(found) == 250
    assert all("2025-05-22T00:00:00" <= run["created_at"] <= UNTIL for run in found)
    assert {run["status"] for run in found} == {"completed", "failed"}
    assert [run["created_at"] for run in found] == sorted((run["created_at"] for run in found), reverse=True)
    assert len({str(run["repository"]) for run in found}) > 3
    assert all(run["updated_at"] > run["created_at"] for run in found)


def test_the_same_seed_makes_the_same_history(lab: Any) -> None:
    """Run by run; another seed makes another."""
    histories = []
    for seed in (7, 7, 8):
        order(lab, seed=seed)
        histories.append(listed(lab))
        lab.reset()

    assert histories[0] == histories[1]
    assert {run["run_id"] for run in histories[0]}.isdisjoint(run["run_id"] for run in histories[2])


def test_active_runs_are_the_newest_and_stay_active(lab: Any) -> None:
    """They are for looking at: no worker takes them up."""
    order(lab, runs=40, active=10)
    found = listed(lab)
    run = lab.api.run(lab.api.start("a real one"))
    lab.api.ended(run["run_id"])

    assert {run["status"] for run in found[:10]} <= {"queued", "working"}
    assert {run["status"] for run in found[10:]} <= {"completed", "failed"}
    assert listed(lab) == found


def test_a_made_up_run_can_be_continued(lab: Any) -> None:
    """On a repository that exists its next turn is executed, with the made-up one in the conversation."""
    order(lab, runs=5, repositories=1)
    newest = listed(lab)[0]
    answer = lab.api.post(
        "/external/runs", {"instructions": "again", "repository": newest["repository"], "run_id": newest["run_id"]}
    )

    assert (answer.status_code, answer.json()["run_id"]) == (201, newest["run_id"])
    assert lab.api.ended(newest["run_id"])["status"] == "completed"


def test_reset_removes_what_was_made_up_and_nothing_else(lab: Any) -> None:
    """Real runs stay."""
    real = lab.api.start("nothing")
    lab.api.ended(real)
    order(lab, runs=12_000)
    removed = lab.reset()["runs_removed"]

    assert removed == 12_000
    assert listed(lab) == []
    assert lab.api.run(real)["status"] == "completed"


def test_the_same_history_is_made_once(lab: Any) -> None:
    """A second time it is 409, with the ways out, and nothing is doubled."""
    answers = [order(lab, runs=20, seed=3) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [201, 409]
    assert "another seed" in answers[1].json()["message"]
    assert len(listed(lab)) == 20


def test_history_for_an_unknown_organization_is_404(lab: Any) -> None:
    """The message names the organization."""
    answer = order(lab, organization="nobody")

    assert (answer.status_code, answer.json()["error_code"]) == (404, "organization_not_found")
    assert "nobody" in answer.json()["message"]


def test_an_organization_without_repositories_gets_made_up_ones(start: Callable[..., Any], lab: Any) -> None:
    """Names only: enough for lists and filters."""
    lab.service.admin("org", "create", "Hollow", "--entitlement", "ServiceAPI")
    value = lab.service.admin("token", "create", "--org", "hollow", "--scope", "admin")["value"]
    order(lab, organization="hollow", runs=30, repositories=2)
    answer = lab.api.get("/external/runs", headers={"Authorization": f"Bearer {value}"}, params={"page_size": 30})

    assert {run["repository"]["data"]["owner"] for run in answer.json()["runs"]} == {"lab"}
    assert len({run["repository"]["data"]["repo"] for run in answer.json()["runs"]}) == 2


def test_a_team_rests_at_weekends_and_has_a_bad_night(lab: Any) -> None:
    """Office hours are busy; the bad night and the code host's incident stand out by their failures, and say why."""
    made = order(lab, runs=2000, span="30d", rhythm="team", repositories=4, agents=["reviewer", "fixer"]).json()
    found = [(datetime.fromisoformat(run["created_at"]), run) for run in listed(lab)]
    failed = Counter(at.date() for at, run in found if run["status"] == "failed")
    weekend = [at for at, _ in found if at.weekday() >= 5]
    office = [at for at, _ in found if at.weekday() < 5 and 8 <= at.hour < 18]

    assert (made["runs"], len(found)) == (2000, 2000)
    assert len(weekend) < 2000 * 2 / 7 / 3 < 2000 / 2 < len(office)
    assert failed.most_common(1)[0][0].isoformat() == "2025-05-26"
    assert all(run["updated_at"] <= UNTIL for _, run in found)
    incident = [run for at, run in found if at.isoformat()[:13] in {"2025-05-27T13", "2025-05-27T14"}]
    assert {run["status"] for run in incident if run["repository"]["platform"] == "gitlab"} <= {"failed"}
    assert order(lab, runs=10, rhythm="team", active=1).status_code == 400
