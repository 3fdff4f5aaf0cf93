"""Waiting until runs end, and the exit codes of it."""

import json
import signal
import sqlite3
from contextlib import closing

import pytest

from tests.cli.conftest import CommandLine
from tests.lab import EXECUTION, Lab, Received, Step


def test_the_exit_code_of_waiting_follows_the_runs(boarded: CommandLine, lab: Lab) -> None:
    """The exit code is 0 if all completed, 1 if one failed, 3 after the time limit; a bare number means seconds."""
    for number, status in enumerate(("completed", "failed", "working", "queued")):
        lab.put(f"run_{number}", status, created=number)
    for run_ids, code, kind in (
        (["run_0"], 0, None),
        (["run_0", "run_1"], 1, None),
        (["run_1", "run_2"], 1, None),
        (["run_3"], 3, "waited_too_long"),
    ):
        result = boarded("runs", "wait", *run_ids, "--timeout", "0.5", "--json")
        document = result.json()
        assert (result.code, [run["run_id"] for run in document["runs"]]) == (code, run_ids)
        assert document.get("error", {}).get("kind") == kind


def test_waiting_outlasts_a_429_and_prints_its_reason(boarded: CommandLine, lab: Lab) -> None:
    """A 429 is reported and waited out, and the reason why a run is queued is printed once."""
    lab.put("run_1", "queued", created=0)
    reason = "waiting for git.example since 01:02"
    lab.turns["run_1"] = {"turns": [{"number": 1, "state": "queued", "reason": reason}]}
    process = boarded.begin("runs", "wait", "run_1", "--timeout", "5m")
    assert any("waiting for git.example" in line for line in iter(process.stderr.readline, ""))
    lab.limit = lambda: 0.0
    assert any("Slow down" in line for line in iter(process.stderr.readline, ""))

    lab.put("run_1", "completed", created=0, updated=1)
    lab.limit = lambda: None
    out, err = process.communicate(timeout=120)

    assert (process.returncode, "completed" in out, "completed" in err) == (0, True, True)
    assert "waiting for git.example" not in err


@pytest.mark.parametrize("words", ["continue", "start"])
def test_a_lagging_list_does_not_end_waiting(boarded: CommandLine, lab: Lab, words: str) -> None:
    """An earlier turn's end does not count for the new turn, and a new run that is not listed yet is waited for."""
    lab.put("run_0", "completed", created=-120, updated=-90)
    lab.put("run_1", "completed", created=-60, updated=-30)
    stale = dict(lab.runs)

    def answer(request: Received) -> Step:
        if request.method == "POST":
            return lab.answer(request)
        if len(lab.list_queries) == 12:
            lab.move(
                next(run_id for run_id, run in lab.runs.items() if run["status"] == "queued"), "completed", updated=5
            )
        actual, lab.runs = lab.runs, stale if len(lab.list_queries) < 8 else lab.runs
        step = lab.answer(request)
        lab.runs = actual
        return step

    lab.otherwise = answer
    arguments = ("continue", "run_1") if words == "continue" else ("start", "-R", "acme/api")
    if words == "continue":
        boarded("runs", "list")

    result = boarded("runs", *arguments, "Once more", "--wait", "--json")

    assert (result.code, result.json()["run"]["status"]) == (0, "completed"), result
    assert len(lab.list_queries) >= 12


@pytest.mark.parametrize(("by", "code", "kind"), [("ctrl+c", 130, "interrupted"), ("the run", 7, "not_found")])
def test_ctrl_c_or_a_vanished_run_ends_waiting(boarded: CommandLine, lab: Lab, by: str, code: int, kind: str) -> None:
    """The error has the requested format, whether waiting was interrupted or the run has vanished."""
    lab.put("run_0", "completed", created=0, updated=5)
    lab.put("run_1", "working", created=1)
    boarded("runs", "list")
    process = boarded.begin("runs", "wait", "run_1", "--timeout", "5m", "--json")
    assert "working" in process.stderr.readline()

    if by == "ctrl+c":
        process.send_signal(signal.SIGINT)
    else:
        del lab.runs["run_1"]
        lab.wait_for(len(lab.requests) + 1)
        with closing(sqlite3.connect(next(boarded.home.rglob("cache.sqlite3")))) as cache, cache:
            # A run that was listed within the last minute does not count as lost.
            cache.execute("UPDATE sightings SET asked_us = asked_us - 61000000")
    out, err = process.communicate(timeout=120)

    assert (process.returncode, json.loads(out)["error"]["kind"]) == (code, kind)
    assert "Traceback" not in err


def test_an_agents_run_is_waited_for_until_it_is_listed(boarded: CommandLine, lab: Lab) -> None:
    """The run is listed later than the execution.

    Its end is the command's result, and no other run is mistaken for it.
    """
    lab.put("run_1", "working")
    start = ("agents", "start", "nightly", "-R", "acme/api", "--wait")

    late = boarded(*start, "--timeout", "0.5", "--json", RUNWARDEN_DATA_DIR=str(boarded.home / "other"))
    lab.before(4, lambda: lab.put("exe_1", "failed"))
    result = boarded(*start, "--json")
    shown = boarded(*start)

    document, error = result.json(), late.json()["error"]
    assert (late.code, late.json()["state"], error["kind"]) == (3, "confirmed", "waited_too_long")
    assert ("no run with the id exe_1 is listed" in error["message"], "run" in late.json()) == (True, False)
    assert (result.code, document["state"], document["execution"]) == (1, "confirmed", EXECUTION)
    assert (document["run"]["run_id"], document["run"]["status"]) == ("exe_1", "failed")
    lines = dict(line.split(None, 1) for line in shown.out.splitlines() if line.startswith(("status", "branch_name")))
    assert lines == {"status": "failed", "branch_name": lab.runs["exe_1"]["branch_name"]}
