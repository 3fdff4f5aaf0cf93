"""`runs list` and `runs export` print runs as they come, and what they printed is true, however it ends."""

import csv
import json
import threading
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.sync.conftest import Desk
from tests.sync.peer import Answer

BROKEN = Answer(500, {"message": "Out of order."})


def test_rows_are_printed_before_the_next_page_comes(desk: Desk) -> None:
    """A reader has the first hundred runs while the service still thinks about the others."""
    desk.peer.fill(150)
    is_read = threading.Event()
    desk.peer.before(2, lambda: is_read.wait(60))
    process = CommandLine(desk.folder, desk.peer.base_url, "test-token").begin("runs", "list", "--all", "-o", "ndjson")
    assert process.stdout is not None

    lines = [process.stdout.readline() for _ in range(100)]
    is_read.set()
    rest, _ = process.communicate(timeout=60)

    ids = [json.loads(line)["run_id"] for line in (*lines, *rest.splitlines())]
    assert ids == sorted(desk.peer.runs, reverse=True)


def test_a_failure_in_the_middle_closes_the_document(desk: Desk) -> None:
    """One valid document: the runs that came, their number and the error; no word of what is complete."""
    desk.peer.fill(250)
    desk.peer.before(3, lambda: BROKEN)
    result = desk.run("runs", "list", "--all", "--json")

    document = result.json()
    assert result.code == 8
    assert (len(document["runs"]), document["count"]) == (200, 200)
    assert document["error"]["kind"] == "server_failed"
    assert set(document) == {"runs", "count", "error"}


@pytest.mark.parametrize("form", ["ndjson", "csv", "table"])
def test_a_failure_in_the_middle_comes_after_the_rows(desk: Desk, form: str) -> None:
    """NDJSON ends with the error; of CSV and a table it is on stderr, and the exit code tells."""
    desk.peer.fill(250)
    desk.peer.before(3, lambda: BROKEN)
    result = desk.run("runs", "list", "--all", "-o", form)

    *rows, last = result.out.splitlines()
    assert result.code == 8
    if form == "ndjson":
        assert len(rows) == 200
        assert json.loads(last)["error"]["kind"] == "server_failed"
    else:
        assert (len(rows), "run_00050" in last) == (200, True)
        assert "Out of order." in result.err


def test_a_failure_before_the_first_run_is_the_whole_document(desk: Desk) -> None:
    """As of every other command."""
    desk.peer.before(1, lambda: BROKEN)
    result = desk.run("runs", "list", "--all", "--json")

    assert list(result.json()) == ["error"]


def test_an_export_that_fails_leaves_no_file(desk: Desk, tmp_path: Path) -> None:
    """Whole or not at all, though its rows were written as they came."""
    desk.peer.fill(250)
    desk.peer.before(3, lambda: BROKEN)
    file = tmp_path / "runs.csv"
    result = desk.run("runs", "export", "--out", str(file), "-o", "csv")

    assert result.code == 8
    assert not list(tmp_path.glob("*runs*"))


def test_no_run_is_printed_twice(desk: Desk) -> None:
    """New runs push those of one page onto the next."""
    desk.peer.paging = "offset"
    desk.peer.fill(250, until=desk.peer.now - timedelta(hours=1))
    desk.peer.before(2, lambda: desk.peer.fill(30))
    document = desk.facts("runs", "list", "--all")

    ids = [run["run_id"] for run in document["runs"]]
    assert (len(ids), len(set(ids))) == (250, 250)
    assert not desk.false_claims(document)


@pytest.mark.parametrize("form", ["json", "csv", "table"])
def test_the_cache_prints_the_same_as_the_service(desk: Desk, form: str) -> None:
    """However many parts it is read in, and with times that say nothing."""
    desk.peer.fill(1_050)
    desk.peer.put("run_odd", created_at="yesterday")
    live = desk.run("runs", "list", "--all", "-o", form).out
    cached = desk.run("runs", "list", "--all", "--cached", "-o", form).out

    if form == "json":
        assert _ids(live) == _ids(cached)
    elif form == "csv":
        assert _cells(live) == _cells(cached)
    else:
        assert len(live.splitlines()) == len(cached.splitlines()) == 1_052


def _ids(out: str) -> set[str]:
    runs = json.loads(out)["runs"]
    assert len(runs) == 1_051
    return {run["run_id"] for run in runs}


def _cells(out: str) -> list[list[str]]:
    return sorted(csv.reader(StringIO(out)))


def test_a_limit_holds_across_parts(desk: Desk) -> None:
    """Of the cache and of the service."""
    desk.peer.fill(700)
    counts = [desk.facts("runs", "list", "--limit", "620", *where)["count"] for where in ([], ["--cached"])]

    assert counts == [620, 620]
