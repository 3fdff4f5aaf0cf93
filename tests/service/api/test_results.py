"""The API's results of a run in addition to the specification: turns, logs, diffs, cancelling (docs/dev/api.md)."""

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from service.settings import DataFolder
from service.store import turns
from tests.service.conftest import Api, Make, Own, refusal
from tests.service.deployment import Deployment, deployment
from tests.service.postgres import Cluster
from tests.service_process import git, put_hook
from tests.waiting import eventually

SETTINGS: Final = '[execution]\nsandbox = "none"\nworker_ttl_s = 3600\ndrain_s = 0.1\n'
TURN_FIELDS: Final = {
    *("number", "instructions", "caller", "state", "started_at", "ended_at", "outcome", "reason", "commit", "summary"),
    *("failure_kind", "from_turn", "question", "choices", "offer", "files", "additions", "deletions", "usage"),
    *("findings", "artifacts", "messages", "inputs", "agent", "usage_by_agent"),
}


def log_path(run_id: str, number: object = 1) -> str:
    return f"/external/runs/{run_id}/turns/{number}/log"


def position(answer: Any) -> tuple[int, int, int, str]:
    """Where a piece of a log begins, where to continue, how long the log is, and whether its turn has ended."""
    offset, following, size = (int(answer.headers[f"Runwarden-Log-{name}"]) for name in ("Offset", "Next", "Size"))
    return offset, following, size, answer.headers["Runwarden-Log-Ended"]


@pytest.fixture(scope="module")
def done(tenant: Make, shared_service: Any) -> tuple[Api, str]:
    """A run with two turns that committed, and one that changed nothing."""
    found = next(one for one in shared_service.setup["organizations"] if one["slug"] == "acme")
    api = Api(shared_service, found)
    run_id = api.start("write one")
    api.ended(run_id)
    for words in ("write two", "nothing at all"):
        assert api.follow(run_id, words).status_code == 201
        api.ended(run_id)
    return api, run_id


def test_a_run_lists_its_turns(done: tuple[Api, str]) -> None:
    """Each turn has its instructions, caller and result; the run is as in the list."""
    api, run_id = done
    found = api.get(f"/external/runs/{run_id}").json()
    told = found.pop("turns")
    first, second, third = told

    url = api.service.base_url.removesuffix("/v1") + f"/runs/{run_id}"
    assert found == api.run(run_id) | {"agent": "scribe", "postings": [], "url": url}
    assert all(set(turn) == TURN_FIELDS for turn in told)
    assert [turn["number"] for turn in told] == [1, 2, 3]
    assert [turn["instructions"] for turn in told] == ["write one", "write two", "nothing at all"]
    assert {(turn["caller"], turn["state"], turn["outcome"]) for turn in told} == {("tests", "completed", "completed")}
    assert (first["summary"], first["files"], first["deletions"], first["reason"]) == ("did write", 1, 0, None)
    assert (second["files"], second["deletions"]) == (1, 0)
    assert first["additions"] > 0
    assert first["started_at"] < first["ended_at"] < second["started_at"]
    assert (third["commit"], third["files"], third["reason"]) == (None, None, turns.NOTHING_CHANGED)
    assert [turn["inputs"] for turn in told] == [{"instructions": "write one"}, None, None]


def test_diffs_apply_and_name_their_commits(done: tuple[Api, str], tmp_path: Path) -> None:
    """A turn's diff is between the branch before and after it.

    The run's starts where the branch left the default one.
    """
    api, run_id = done
    repository = api.service.repositories["acme/api"]
    git("clone", "--quiet", str(repository), str(tmp_path / "clone"), cwd=tmp_path)
    commits = [turn["commit"] for turn in api.turns(run_id)]
    paths = (*(f"turns/{n}/diff" for n in (1, 2, 3)), "diff")
    one, two, three, whole = (api.get(f"/external/runs/{run_id}/{path}") for path in paths)
    main = git("rev-parse", "main", cwd=repository)
    between = [(answer.headers["Runwarden-Base"], answer.headers["Runwarden-Head"]) for answer in (one, two, whole)]
    for answer in (one, two):
        applied = subprocess.run(["git", "apply", "--index"], cwd=tmp_path / "clone", input=answer.content, check=False)
        assert applied.returncode == 0
    made = git("write-tree", cwd=tmp_path / "clone")

    assert between == [(main, commits[0]), (commits[0], commits[1]), (main, commits[1])]
    assert made == git("rev-parse", f"{commits[1]}^{{tree}}", cwd=repository)
    assert one.headers["content-type"] == "text/plain; charset=utf-8"
    assert (three.status_code, three.content, "Runwarden-Head" in three.headers) == (200, b"", False)
    options = ("--binary", "--full-index", "--no-renames", main, commits[1])
    assert whole.text.rstrip("\n") == git("diff", *options, cwd=repository)


def test_a_log_is_read_in_pieces(done: tuple[Api, str]) -> None:
    """Each piece, even beyond the end, has its offset.

    An invalid query is a 400, never a 422, without waiting; a missing turn is a 404.
    """
    api, run_id = done
    whole = api.get(log_path(run_id))
    size = len(whole.content)

    assert b"scribe at work on turn 1" in whole.content
    assert whole.headers["content-type"] == "application/octet-stream"
    for offset, start in ((0, 0), (5, 5), (-7, size - 7), (size + 9, size), (-size - 9, 0)):
        piece = api.get(log_path(run_id), params={"offset": offset})
        assert (piece.content, position(piece)) == (whole.content[start:], (start, size, size, "true"))
    for query in ("offset=x", "offset=1&offset=2", "wait=31", "form=xml", "before=x"):
        assert refusal(api.get(f"{log_path(run_id)}?{query}")) == (400, "invalid_query"), query
    for number in ("0", "4", "x"):
        assert refusal(api.get(log_path(run_id, number))) == (404, "turn_not_found"), number


def test_another_organizations_run_is_not_found(done: tuple[Api, str], tenant: Make) -> None:
    """The service answers exactly like a missing run: not shown, listed, continued or cancelled.

    A missing scope is a 403.
    """
    api, run_id = done
    other = tenant(repositories=[{"name": "api", "platform": "github", "path": "acme/api", "url": "/srv/none.git"}])
    made = api.service.admin("token", "create", "--org", "acme", "--scope", "organizations:create")
    scopeless = {"Authorization": f"Bearer {made['token']}"}
    for path in ("", "/turns/1/log", "/turns/1/diff", "/diff", "/cancel"):
        method = "POST" if path == "/cancel" else "GET"
        theirs = other.http.request(method, f"/external/runs/{run_id}{path}")
        none = other.http.request(method, f"/external/runs/run_none{path}")
        without = other.http.request(method, f"/external/runs/{run_id}{path}", headers=scopeless)

        assert refusal(theirs) == (404, "run_not_found"), path
        assert theirs.text.replace(run_id, "run_none") == none.text
        assert without.status_code == 403
    assert refusal(other.follow(run_id, "mine now")) == (404, "run_not_found")
    assert list(other.runs()) == []
    assert "mine now" not in str(api.service.admin("run", run_id))


def test_an_unpushed_diff_can_be_read(own: Own, tmp_path: Path) -> None:
    """The patch may be the only copy, however large."""
    api, _ = own()
    api.add_agent(tmp_path, "large", "open('large.txt', 'w').write('0123456789abcde\\n' * 600_000); exit(3)")
    only, run_id = api.begin("large", instructions="go"), api.start("write it")
    api.ended(only)
    api.ended(run_id)
    folder = DataFolder(api.service.data_dir)
    answer = api.get(f"/external/runs/{only}/turns/1/diff")
    for file in (folder.turn_file(run_id, 1, "diff"), folder.turn_file(run_id, 1, "log")):
        file.unlink()
    gone = [api.get(f"/external/runs/{run_id}/{path}").status_code for path in ("turns/1/log", "turns/1/diff", "diff")]

    assert (answer.status_code, len(answer.content) > 9 << 20) == (200, True)
    assert answer.content == folder.turn_file(only, 1, "diff").read_bytes()
    assert gone == [410] * 3
    assert api.turns(run_id)[0]["commit"]


@pytest.fixture(scope="module")
def apart(postgres: Cluster, tables: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, Api]]:
    """A service whose turns work on another machine than its API."""
    with (
        postgres.temporary(tables) as url,
        deployment(tmp_path_factory.mktemp("deployment"), url, settings=SETTINGS) as made,
    ):
        made.begin("worker", machine="far")
        yield made, made.client(made.api("near"))


def followed(api: Api, run_id: str, heard: list[bytes]) -> None:
    """Follow a log to its end, piece by piece."""
    offset, size, has_ended = 0, 1, "false"
    while has_ended != "true" or offset < size:
        answer = api.get(log_path(run_id), params={"offset": offset, "wait": 30})
        assert answer.status_code == 200, answer.text
        heard.append(answer.content)
        _, offset, size, has_ended = position(answer)


def test_a_working_turns_log_is_followed(apart: tuple[Deployment, Api], tmp_path: Path) -> None:
    """A waiting caller gets each piece from the other machine, and the end."""
    _, api = apart
    gate, heard = tmp_path / "gate", list[bytes]()
    run_id = api.start(f"wait {gate}")
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(followed, Api(api.service, api.organization), run_id, heard)
        eventually(lambda: b"at work on turn 1" in b"".join(heard), "the agent is heard")
        unfinished = api.get(f"/external/runs/{run_id}/turns/1/diff")
        gate.touch()
        end.result(120)

    assert refusal(unfinished) == (409, "turn_active")
    assert b"".join(heard) == api.get(log_path(run_id)).content
    assert b"pushed" in b"".join(heard)
    assert api.get(f"/external/runs/{run_id}/diff").content.startswith(b"diff --git a/notes/")


def test_artifacts_and_large_changes_come_from_another_machine(apart: tuple[Deployment, Api], tmp_path: Path) -> None:
    """A change too large to show is an artifact of its turn."""
    made, api = apart
    source = "import os; os.makedirs('.runwarden/artifacts'); open('.runwarden/artifacts/a.txt', 'w').write('a' * 99)"
    script = tmp_path / "leaver.py"
    script.write_text(f"{source}\nopen('large.txt', 'w').write('0123456789abcde\\n' * 600_000)", "utf-8")
    made.admin("agent", "add", "leaver", "--argv", f"{{python}} {script}")
    run_id = api.begin("leaver", instructions="go")
    api.ended(run_id)
    listed = api.turns(run_id)[0]["artifacts"]
    found = [api.get(f"/external/runs/{run_id}/turns/1/artifacts/{one['name']}").content for one in listed]

    assert [one["name"] for one in listed] == ["a.txt", "change.patch"]
    assert [len(one) for one in found] == [one["bytes"] for one in listed]
    assert (found[0], found[1][:23]) == (b"a" * 99, b"diff --git a/large.txt ")
    assert refusal(api.get(f"/external/runs/{run_id}/diff")) == (413, "diff_too_large")


def test_cancelling_ends_a_turn_wherever_it_works(apart: tuple[Deployment, Api], tmp_path: Path) -> None:
    """The turn may be working or waiting, and cancelling twice is harmless.

    Its processes stop, nothing is pushed, and the next turn runs.
    """
    made, api = apart
    run_id = api.start(f"wait {tmp_path / 'never'}", branch_name="shared")
    waiting = api.start("write it, too", branch_name="shared")
    eventually(lambda: b"at work on turn 1" in api.get(log_path(run_id)).content, "the agent works")
    made.admin("run", "cancel", waiting)
    answers = [api.post(f"/external/runs/{run_id}/cancel", {}) for _ in range(2)]
    eventually(lambda: not [left for left in made.leftovers() if "scribe" in left], "the agent is gone")
    told = [api.turns(one)[0] for one in (run_id, waiting)]
    trail = [one for one in made.admin("audit", "list")["entries"] if one["action"] == "run.cancel"]
    assert api.follow(run_id, "write it").status_code == 201
    after = api.ended(run_id)
    late = api.post(f"/external/runs/{run_id}/cancel", {})

    assert [(answer.status_code, answer.json()["status"]) for answer in answers] == [(202, "failed")] * 2
    assert {(one["state"], one["outcome"], one["commit"]) for one in told} == {("cancelled", "cancelled", None)}
    assert [one["reason"] for one in told] == ["cancelled by tests", "cancelled by the operator"]
    assert [one["target"] for one in trail] == [waiting, run_id]
    assert after["status"] == "completed"
    subjects = git("log", "--format=%s", "main..shared", cwd=made.repositories["acme/api"])
    assert subjects.splitlines() == ["scribe: write it"]
    assert refusal(late) == (409, "run_not_active")


def test_cancelling_during_a_push_reports_it(own: Own, tmp_path: Path) -> None:
    """While the repository delays a push, the turn is cancelled.

    It stays cancelled, and shows the commit that arrived.
    """
    api, repository = own()
    waits = f"touch {tmp_path}/pushing; while [ ! -e {tmp_path}/gate ]; do sleep 0.02; done"
    put_hook(repository, "pre-receive", waits)
    run_id = api.start("write it")
    eventually((tmp_path / "pushing").exists, "the push is under way")
    assert api.post(f"/external/runs/{run_id}/cancel", {}).status_code == 202
    (tmp_path / "gate").touch()
    eventually(lambda: api.turns(run_id)[0]["commit"], "the commit is noted")
    turn = api.turns(run_id)[0]

    assert (turn["outcome"], turn["files"]) == ("cancelled", 1)
    assert turn["reason"] == "cancelled by tests; its change had been pushed already"
    assert turn["commit"] == git("rev-parse", api.run(run_id)["branch_name"], cwd=repository)


def test_the_reason_of_a_failure_is_in_plain_words(own: Own, tmp_path: Path) -> None:
    """For a missing command and a refused push, the reason does not name the data folder."""
    api, repository = own()
    program = tmp_path / "nowhere"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    api.service.admin("agent", "add", "nowhere", "--argv", str(program), "--org", api.organization["slug"])
    program.unlink()
    put_hook(repository, "pre-receive", "echo not today >&2; exit 1")
    runs = [api.begin("nowhere"), api.start("write it")]
    nowhere, refused = (api.turns(api.ended(one)["run_id"])[0]["reason"] for one in runs)

    assert "is not there, or may not be executed" in nowhere
    assert refused.startswith("the push was refused: ")
    assert "not today" in refused
    assert str(api.service.data_dir) not in nowhere + refused
