"""Files in `.runwarden/artifacts` are stored with the turn, returned by the API, and never committed."""

import os
import stat
from pathlib import Path
from typing import Any, Final

import pytest

from service.clock import DAY_MICROS
from service.execution.artifacts import refusal
from service.execution.retention import prune_stored_files
from service.settings import ArtifactLimits, DataFolder
from service.store import deletions, turn_files, turns
from service.store.database import Database
from service.store.turns import TurnOutcome
from tests.service.conftest import NOW, Api, Make, Own, accepted
from tests.service_process import git

FOLDER: Final = ".runwarden/artifacts"
LEAVE: Final = f"""
folder = pathlib.Path("{FOLDER}")
folder.mkdir(parents=True)
(folder / "charts").mkdir()
(folder / "report.md").write_text(f"# Turn {{task['turn']}}\\n")
(folder / "charts/a b.png").write_bytes(bytes(range(256)))
"""
HOSTILE: Final = f"""
import socket
folder = pathlib.Path("{FOLDER}")
folder.mkdir(parents=True)
(folder / "good.txt").write_text("good")
(folder / "link.txt").symlink_to("/etc/passwd")
(folder / "links").symlink_to("/etc")
os.link("README.md", folder / "hard.txt")
os.mkfifo(folder / "pipe")
socket.socket(socket.AF_UNIX).bind(str(folder / "socket"))
(folder / "two\\nlines.txt").write_text("x")
(folder / "sparse.bin").touch()
os.truncate(folder / "sparse.bin", 1 << 29)
(folder / "secret.txt").write_text("it is " + os.environ["SECRET"])
(folder / "change.patch").write_text("not the service's")
(folder / "locked").mkdir()
(folder / "locked/in.txt").write_text("in")
(folder / "locked/in.txt").chmod(0)
(folder / "locked").chmod(0)
os.chdir(folder)
for _ in range(400):
    os.mkdir("deep")
    os.chdir("deep")
open("lost.txt", "w").close()
sys.exit(3)
"""
MANY: Final = f"""
folder = pathlib.Path("{FOLDER}")
folder.mkdir(parents=True)
for number in range(150):
    (folder / f"{{number:04}}.txt").write_text("x")
"""


def fetched(api: Api, run_id: str, name: str, turn: int = 1) -> Any:
    return api.get(f"/external/runs/{run_id}/turns/{turn}/artifacts/{name}")


def test_artifacts_belong_to_their_turn_and_are_not_committed(own: Own, tenant: Make) -> None:
    """Each turn has its own artifacts, without those that the repository contains; another organization gets a 404."""
    api, bare = own({"README.md": "# api\n", f"{FOLDER}/old.txt": "of the repository"})
    turn = api.work(LEAVE + "pathlib.Path('new.txt').touch()")
    run_id = turn["run_id"]
    second = api.go_on(run_id, "pass")
    report, chart = fetched(api, run_id, "report.md"), fetched(api, run_id, "charts/a b.png")
    missing = [fetched(api, run_id, name) for name in ("none.txt", "old.txt", "%00", "..%2Freport.md")]
    theirs = fetched(tenant(), run_id, "report.md")

    assert turn["artifacts"] == [{"name": "charts/a b.png", "bytes": 256}, {"name": "report.md", "bytes": 9}]
    assert (second["artifacts"], "kept 2 artifacts" in turn["log"]) == ([], True)
    assert (report.content, chart.content) == (b"# Turn 1\n", bytes(range(256)))
    assert chart.headers["content-type"] == "application/octet-stream"
    assert chart.headers["content-disposition"] == "attachment; filename*=UTF-8''a%20b.png"
    assert chart.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in chart.headers["content-security-policy"]
    assert {(one.status_code, one.json()["error_code"]) for one in missing} == {(404, "artifact_not_found")}
    assert (theirs.status_code, theirs.json()["error_code"]) == (404, "run_not_found")
    assert git("diff", "--name-only", "main", turn["commit"], cwd=bare) == "new.txt"


def test_only_plain_files_are_artifacts(own: Own) -> None:
    """No file elsewhere is read, and valid files are stored, even for a failed agent."""
    api, _ = own()
    turn = api.work(HOSTILE)
    left_out = dict[str, str]()
    for line in turn["log"].splitlines():
        if "left out: " in line:
            why, _, names = line.partition("because ")[2].rpartition(": ")
            left_out |= dict.fromkeys(names.split(", "), why)
    deep = next(name for name in left_out if name.startswith("deep/"))

    assert (turn["outcome"], [one["name"] for one in turn["artifacts"]]) == ("failed", ["good.txt", "locked/in.txt"])
    assert fetched(api, turn["run_id"], "locked/in.txt").content == b"in"
    assert {name: why for name, why in left_out.items() if name != deep} == {
        **dict.fromkeys(("link.txt", "links"), "links are not followed"),
        "hard.txt": "a hard link may be to a file elsewhere: copy it",
        **dict.fromkeys(("pipe", "socket"), "they are no regular files"),
        "two␊lines.txt": "their names have control characters, or more than 255",
        "sparse.bin": "they pass the limit execution.artifacts.file_bytes = 10485760",
        "secret.txt": "they hold the value of SECRET",
        "change.patch": "the service uses these names itself: change.patch, run.patch",
    }
    assert left_out[deep] == left_out["two␊lines.txt"]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (f"os.makedirs('.runwarden'); os.mkfifo('{FOLDER}')", f"{FOLDER} is not read: Not a directory"),
        ("os.makedirs('x/artifacts'); os.symlink('x', '.runwarden')", f"{FOLDER} is not read: Not a directory"),
        (MANY, "left out: 50 artifacts, because they pass the limit execution.artifacts.files = 100: 0100.txt, "),
    ],
    ids=["pipe", "link above", "many"],
)
def test_bad_artifacts_do_not_fail_the_turn(api: Api, make: str, why: str) -> None:
    """The turn completes, with as many files as are allowed."""
    turn = api.work(make)

    assert (turn["outcome"], why in turn["log"]) == ("completed", True), turn["log"]
    assert len(turn["artifacts"]) == (100 if make == MANY else 0)


def test_each_artifact_limit_is_named() -> None:
    """A file that replaces one of an earlier attempt counts once."""
    limits = ArtifactLimits(files=2, file_bytes=60, turn_bytes=105, organization_bytes=1000)
    for name, size, others, key in (
        ("one", 55, 0, ""),
        ("other", 10, 0, "files"),
        ("one", 61, 0, "file_bytes"),
        ("two", 56, 0, "turn_bytes"),
        ("two", 41, 910, "organization_bytes"),
    ):
        status = os.stat_result((stat.S_IFREG, 0, 0, 1, 0, 0, size, 0, 0, 0))
        why = refusal(name, status, limits, {"one": 50, "two": 50}, others)
        assert f"execution.artifacts.{key} = " in str(why) if key else why is None, key


def test_artifacts_are_counted_pruned_and_deleted(database: Database, tmp_path: Path) -> None:
    """Only the latest attempt counts; a patch is listed, and its bytes are stored with the patches."""
    folder = DataFolder(tmp_path / "data")
    folder.create()
    first, second = (accepted(database) for _ in range(2))
    key, other = (first.id, 1), (second.id, 1)
    with database.write() as connection:
        for attempt, content in ((0, b"draft"), (0, b"last one"), (7, b"late")):
            turn_files.put_artifact(connection, key, attempt, "a.txt", len(content), content)
        turn_files.put_artifact(connection, other, 0, "b.txt", 5, b"other")
        turn_files.put_artifact(connection, key, 0, "run.patch", 9, None)
        turn_files.save(connection, key, 0, "run.diff", b"the patch")
        folder.turn_file(*key, "run.diff").parent.mkdir()
        folder.turn_file(*key, "run.diff").write_bytes(b"the patch")
        found = [turn_files.artifact(connection, folder, key, name) for name in ("a.txt", "run.patch", "none")]
        held = turn_files.artifacts_held(connection, first.organization_id, key)
        for one in (key, other):
            assert turns.end(connection, *one, TurnOutcome("completed"), NOW + DAY_MICROS * (one == other))
    pruned = [prune_stored_files(database, NOW + 1, turn_files.ARTIFACTS) for _ in range(2)]
    with database.write() as connection:
        left = [turn_files.artifacts_of(connection, one.id) for one in (first, second)]
        deletions.delete_runs(connection, [second.id], NOW)
        gone = turn_files.artifacts_held(connection, second.organization_id, other)

    assert (found, held) == ([b"last one", b"the patch", None], ({"a.txt": 8, "run.patch": 9}, 5))
    assert (pruned, [len(one[1]) for one in left]) == ([2, 0], [0, 1])
    assert gone == ({}, 0)
