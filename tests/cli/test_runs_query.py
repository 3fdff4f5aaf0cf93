"""`--search` takes the console's query language."""

from tests.cli.conftest import CommandLine
from tests.run_board import Board


def ids(boarded: CommandLine, *arguments: str) -> list[str]:
    """The runs that are listed."""
    return [run["run_id"] for run in boarded("runs", "list", *arguments, "--json").json()["runs"]]


def test_a_query_filters_live_and_from_the_cache_alike(boarded: CommandLine, board: Board) -> None:
    """What the API cannot filter is filtered here, by the same rules."""
    for number, status in enumerate(["completed", "failed", "working", "failed"]):
        board.put(f"run_{number}", status, created=number, branch_name=f"agent/b{number}")
    board.put("run_other", "failed", created=9, repository={"platform": "gitlab", "data": {"project_path": "acme/x"}})

    for where in ([], ["--cached"]):
        assert ids(boarded, "--search", "status:failed repo:acme/*", *where) == ["run_3", "run_1"]
        assert ids(boarded, "--search", "-status:failed b2", *where) == ["run_2"]
        assert ids(boarded, "--search", "repo:x", *where) == ["run_other"]
        assert ids(boarded, "--search", "is:ended -branch:agent/b1 -repo:gitlab:", *where) == ["run_3", "run_0"]
        assert ids(boarded, "--search", "since:2026-05-01 until:2026-05-01 is:active", *where) == ["run_2"]
        assert ids(boarded, "--search", "-until:2026-05-01", *where) == []
        # Options and query hold together, as if they stood in one line.
        assert ids(boarded, "--search", "repo:acme/api", "--status", "failed", "--branch", "!agent/b1", *where) == [
            "run_3"
        ]


def test_a_mistake_is_told_with_its_place(lone: CommandLine) -> None:
    """Exit code 2, before anything is asked."""
    result = lone("runs", "list", "--search", "login statsu:failed", "--json")

    error = result.json()["error"]
    assert (result.code, error["kind"]) == (2, "usage")
    assert "at character 7: There is no statsu:. Did you mean status:?" in error["message"]
    assert (error["problems"][0]["start"], error["problems"][0]["end"]) == (6, 13)


def test_a_date_ends_with_its_day(boarded: CommandLine, board: Board) -> None:
    """For `--to` as for `until:`; `--from` begins with it."""
    board.put("run_1", "completed", created=0)

    assert ids(boarded, "--to", "2026-05-01", "--from", "2026-05-01") == ["run_1"]
    assert ids(boarded, "--to", "2026-04-30") == []
