import sqlite3
from contextlib import closing

import pytest

from tests.cli.conftest import CommandLine
from tests.lab import Hang, Lab, Respond, Server, stamp


def test_instructions_come_from_a_file_stdin_or_an_editor(boarded: CommandLine) -> None:
    """The text arrives unchanged from each source; on stdin, the token's line may come before it."""
    task = "Look at web\nthoroughly\n"
    (boarded.home / "task.md").write_text(task)
    (boarded.home / "editor.sh").write_text('#!/bin/sh\nprintf "Look at web\\nthoroughly\\n" > "$1"\n')
    (boarded.home / "editor.sh").chmod(0o700)
    start = ("runs", "start", "-R", "acme/web", "--dry-run", "--json")

    from_file = boarded(*start, "-f", "task.md")
    below_token = boarded("--token-stdin", *start, "-", stdin=f"{boarded.token}\n{task}", RUNWARDEN_TOKEN="")
    from_editor = boarded(*start, EDITOR=str(boarded.home / "editor.sh"))

    bodies = [each.json()["request"]["body"]["instructions"] for each in (from_file, below_token, from_editor)]
    assert bodies == [task.strip()] * 3


def ids(boarded: CommandLine, *arguments: str) -> list[str]:
    """The ids of the listed runs."""
    listing = boarded("runs", "list", *arguments, "--json").json()
    assert listing["count"] == len(listing["runs"])
    return [run["run_id"] for run in listing["runs"]]


def test_filters_combine(boarded: CommandLine, lab: Lab) -> None:
    """Filters combine, as options and as a query, live and cached, including those that the API does not have."""
    for number, status in enumerate(["completed", "failed", "working", "failed"]):
        lab.put(f"run_{number}", status, created=number, branch_name=f"agent/b{number}")
    lab.put("run_other", "failed", created=9, repository={"platform": "gitlab", "data": {"project_path": "acme/x"}})
    assert ids(boarded) == ["run_other", "run_3", "run_2", "run_1", "run_0"]

    for arguments, found in (
        (["--status", "failed", "-R", "acme/api"], ["run_3", "run_1"]),
        (["--status", "failed", "--status", "working", "--branch", "agent/*"], ["run_3", "run_2", "run_1"]),
        (["--from", stamp(1), "--to", stamp(2)], ["run_2", "run_1"]),
        (["--limit", "2"], ["run_other", "run_3"]),
        (["--search", "status:failed repo:acme/*"], ["run_3", "run_1"]),
        (["--search", "is:ended -branch:agent/b1 -repo:gitlab:"], ["run_3", "run_0"]),
        # `--to` and `until:` include the whole day.
        (["--search", "-until:2026-05-01"], []),
        (["--from", "2026-05-01", "--to", "2026-05-01", "--active"], ["run_2"]),
        # Options and query are combined as if they were one line.
        (["--search", "repo:acme/api", "--status", "failed", "--branch", "!agent/b1"], ["run_3"]),
    ):
        assert ids(boarded, *arguments) == ids(boarded, *arguments, "--cached") == found, arguments


def test_a_part_of_an_id_must_be_unambiguous(boarded: CommandLine, lab: Lab) -> None:
    """A part needs four characters, an ambiguous one is refused, and a write reports the full id that it uses."""
    for created, run_id in enumerate(("run_1a_wxyz", "run_1b_wxyz", "run_01X37QCR")):
        lab.put(run_id, "working", created=created)

    for part in ("run_1", "wxyz"):
        result, said = boarded("runs", "show", part, "--json"), boarded("runs", "continue", part, "More")
        assert (result.code, result.json()["error"]["kind"]) == (2, "ambiguous")
        assert sorted(result.json()["error"]["candidates"]) == ["run_1a_wxyz", "run_1b_wxyz"]
        assert (said.code, "run_1a_wxyz" in said.err, "run_1b_wxyz" in said.err) == (2, True, True)
    for write in (("continue", "X37QCR", "More"), ("cancel", "X37QCR")):
        result = boarded("runs", *write, "--dry-run")
        assert (result.code, result.err.splitlines()[-1]) == (0, "X37QCR is the run run_01X37QCR.")
        assert "run_01X37QCR" in result.out
    assert [boarded("runs", "continue", part, "More", "--dry-run").code for part in ("QCR", "X37Q")] == [7, 7]


@pytest.mark.parametrize(("status", "code"), [(401, 4), (404, 7), (429, 5), (500, 8), (0, 8)])
def test_a_failed_read_names_its_cause(faulty: CommandLine, server: Server, status: int, code: int) -> None:
    """A 404 for the list means a wrong API address, and status 0 means no answer within the deadline."""
    server.script(Respond(status, {"message": "so it is"}, {"Location": "/v1/elsewhere"}) if status else Hang())
    (faulty.home / "config.toml").write_text(f"[poll]\ndeadline_s = {5 if status else 0.5}\n")

    result = faulty("--config", "config.toml", "runs", "list", "--json")

    message = result.json()["error"]["message"]
    assert (result.code, bool(message)) == (code, True)
    assert message.startswith("so it is. Check the base address: it ends with the version") == (status == 404)


def test_every_format_counts_omitted_entries(boarded: CommandLine, lab: Lab) -> None:
    """Entries without a usable id are counted, so that a short list is not taken for the complete one."""
    lab.put("run_1", created=0)
    lab.nulls = 2
    for words in (("list",), ("list", "-o", "ndjson"), ("export",)):
        result = boarded("runs", *words)
        assert (result.code, "run_1" in result.out, "Left out 2 entries" in result.err) == (0, True, True), words


def test_service_and_cache_answer_independently(
    boarded: CommandLine, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is shown while another process locks the cache; `--cached` never uses the network."""
    monkeypatch.setattr("storage.database.BUSY_WAIT_S", 0.05)
    lab.put("run_1", created=0)
    lab.health = {"github": {"status": "ok"}}
    assert "Nothing was fetched yet; runs may be missing." in boarded("runs", "list", "--cached").err
    boarded("runs", "list")
    lab.put("run_2", created=1)
    with closing(sqlite3.connect(next(boarded.home.rglob("cache.sqlite3")), isolation_level=None)) as cache:
        cache.execute("BEGIN EXCLUSIVE")
        runs, health = boarded("runs", "list", "--json"), boarded("health", "--json")

    assert ([run["run_id"] for run in runs.json()["runs"]], runs.code) == (["run_2", "run_1"], 0)
    assert (health.json()["status"], health.code) == ("ok", 0)
    assert all("another process holds the cache" in result.err for result in (runs, health))
    asked = len(lab.list_queries)
    cached = boarded("runs", "list", "--cached", "--json").json()
    assert (cached["source"], cached["count"], len(lab.list_queries)) == ("cache", 1, asked)
    assert cached["as_of"] is not None
    lab.close()
    down, shown = boarded("runs", "list", "--json"), boarded("runs", "list")
    assert (down.code, down.json()["error"]["kind"], shown.code, shown.out) == (8, "unreachable", 8, "")
    assert "--cached" in down.json()["error"]["message"]


def test_without_a_terminal_the_console_prints_a_snapshot(boarded: CommandLine, lab: Lab) -> None:
    """Counts and a table are printed after the first sync.

    Stale rows are marked, and the exit code gives the reason.
    """
    for number, status in enumerate(["completed", "working", "queued", "working"] * 10):
        lab.put(f"run_{number:02}", status, created=number)
    lab.health = {"github": {"status": "degraded"}}
    result = boarded()
    busy = Respond(429, {"message": "slow down"})
    lab.otherwise = lambda request: busy if request.path.endswith("/runs") else lab.answer(request)
    stale = boarded()
    lines = result.out.splitlines()

    assert (result.code, result.err, boarded.base_url in result.out, "live" in result.out) == (0, "", True, True)
    assert any(line.startswith("github degraded since") for line in lines)
    shown = [line.split()[-1] for line in lines if "run_" in line]
    assert shown == [f"run_{number}" for number in range(39, 19, -1)]
    assert (stale.code, "run_39" in stale.out, "stale since" in stale.out, "slow down" in stale.err) == (5, *[True] * 3)
