"""Findings of a turn, from the agent's file to the answer of the API."""

from pathlib import Path
from typing import Final

from tests.service.conftest import Own
from tests.service_process import git

FINDER: Final = """
import json, pathlib, sys
task = json.load(sys.stdin)
folder = pathlib.Path(".runwarden")
folder.mkdir(exist_ok=True)
one = {"rule": "r", "path": "README.md", "line": 1, "title": "heading"}
(folder / "findings.json").write_text(json.dumps({"version": 1, "findings": [one, {"path": "/x", "title": "y"}]}))
(folder / "findings.sarif").write_text("{")
if task["instructions"] == "write":
    (folder / "other.txt").write_text("never committed")
    pathlib.Path("kept.txt").write_text("kept")
"""


def test_findings_are_read_after_the_turn_and_never_committed(own: Own, tmp_path: Path) -> None:
    """Those of the repository itself count for nothing, nor does its question; what is broken is told in the log."""
    stale = '{"version": 1, "findings": [{"path": "a", "title": "stale"}]}'
    asked = '{"question": "Which?"}'
    given = {".runwarden/findings.json": stale, ".runwarden/question.json": asked}
    api, bare = own({"README.md": "# api\n"} | given)
    api.add_agent(tmp_path, "finder", FINDER, "--org", api.organization["slug"])
    api.add_agent(tmp_path, "idler", "", "--org", api.organization["slug"])
    runs = [api.begin("finder", instructions="write"), api.begin("finder", instructions="look"), api.begin("idler")]
    writing, looking, idle = (api.ended(run_id) for run_id in runs)
    (wrote,), (looked,), (none,) = (api.turns(run_id) for run_id in runs)

    assert [run["status"] for run in (writing, looking, idle)] == ["completed"] * 3
    assert git("diff", "--name-only", "main", writing["branch_name"], cwd=bare) == "kept.txt"
    assert (looked["commit"], none["findings"]) == (None, None)
    assert wrote["findings"] == looked["findings"]
    assert [(one["path"], one["line"], one["severity"], len(one["id"])) for one in wrote["findings"]] == [
        ("README.md", 1, "minor", 16)
    ]
    assert "finding 2 is left out: path: " in api.log(runs[0])
    assert ".runwarden/findings.sarif is not " in api.log(runs[0])
