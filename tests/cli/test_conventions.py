"""What people who know other command lines take for granted."""

import pytest

from app.cli.examples import EXAMPLES
from tests.cli.conftest import CommandLine
from tests.cli.test_docs import ALL
from tests.distribution.test_documents import fault


def test_the_format_may_be_anywhere(lone: CommandLine) -> None:
    """Before a command's name as after it."""
    for line in ("--json runs list --cached", "runs -o json list --cached", "runs list --cached -o json --json"):
        assert lone(*line.split()).json()["runs"] == []


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("runs list --cached --json -o csv", "--json"),
        ("-o csv runs list --cached --json", "--json"),
        ("runs list --cached -o csv -o table", "-o"),
        ("--json console", "--json"),
        ("--json", "--json"),
        ("runs list --cached --limit 2 --all", "--all"),
        ("runs list --cached --active --status completed", "--active"),
        ("runs list --cached --status failed --status !failed", "failed"),
        ("actions list --limit 2 --all", "--all"),
        ("--profile a config check --profile b", "--profile"),
        # What was meant is named; an empty list would pass for the answer.
        ("runs list --cached --status faild", "failed"),
        ("runs export --cached --status !complete", "completed"),
        ("runs list --cached --search status:wroking", "working"),
        ("runs list --cached --search staus:failed", "status"),
        ("runz", "runs"),
        ("runs lst", "list"),
        ("runs list --cachd", "--cached"),
        ("actions list --state unkown", "unknown"),
    ],
)
def test_a_contradiction_or_a_misspelling_is_refused(lone: CommandLine, line: str, named: str) -> None:
    """Neither of two wishes is dropped in silence."""
    result = lone(*line.split())

    assert result.code == 2
    assert named in result.out + result.err


GROUPS = {" ".join(name.split()[1:-1]) for name in ALL}


@pytest.mark.parametrize(
    "line",
    [
        "bogus --json",
        "runs bogus --json",
        "runs list --json --bogus",
        "runs list --bogus -o json",
        "runs list --output=ndjson --limit 0",
        "runs start --json go",
        "runs list --from yesterday --json",
        "runs list --from -1h --to -2h --json",
        "runs wait r --timeout soon --json",
        "runs start -R nowhere go --json",
        "runs start -R acme/api --metadata novalue go --json",
        "runs start -R acme/api --metadata a=1 --metadata a=2 go --json",
        "runs start -R acme/api --json",
        "actions resolve act_x --json",
        "actions resolve act_x --not-created --send-again --json",
    ],
)
def test_a_mistake_on_the_command_line_is_json_too(lone: CommandLine, line: str) -> None:
    """Exit code 2, and nothing on stderr that a script would have to parse; without JSON stdout stays empty."""
    arguments = line.split()
    result, told = lone(*arguments), lone(*(each for each in arguments if "json" not in each and each != "-o"))

    assert result.code == 2
    assert result.json()["error"]["kind"] == "usage"
    assert result.json()["error"]["message"]
    assert (told.code, told.out, bool(told.err)) == (2, "", True)


def test_examples_are_of_commands_that_there_are() -> None:
    """Where there is more to show than the command's name, and of nothing that there is not."""
    assert set(EXAMPLES) <= {name.partition(" ")[2] for name in ALL} | GROUPS


def test_every_command_and_option_of_an_example_exists() -> None:
    """As it is typed; what stands behind a pipe may be another program's."""
    calls = [part for shown in EXAMPLES.values() for each in shown for part in f"runwarden {each}".split(" | ")]
    ours = [part.removeprefix("xargs ") for part in calls if "runwarden" in part]

    assert {call: fault(call.removeprefix("runwarden")) for call in ours if fault(call.removeprefix("runwarden"))} == {}


def test_the_manual_has_the_help_of_every_command(lone: CommandLine) -> None:
    """Or of those below one; into a pipe it is plain text. A name that there is not is refused, as without `man`."""
    whole = lone("man").out

    assert [name for name in ALL if f"Usage: {name} " not in whole] == []
    assert lone("man", "config", "set").out == lone("config", "set", "--help").out
    assert "\nExamples:\n  runwarden runs list --status failed --from -24h\n" in lone("runs", "list", "--help").out
    assert "Usage: runwarden config set " in lone("man", "config").out
    assert "Did you mean list?" in lone("man", "runs", "lst").err
    assert lone("man", "runs", "list", "acme").code == 2


def test_the_log_has_requests_and_never_the_token(boarded: CommandLine) -> None:
    """On stderr or in a file; stdout stays what it was."""
    plain, verbose = boarded("runs", "list", "--json"), boarded("-v", "runs", "list", "--json")
    boarded("runs", "start", "-R", "acme/api", "Say nothing of this.", "--log-file", "log", "-v")
    log = boarded.home / "log"

    assert not plain.err
    assert [run["run_id"] for run in verbose.json()["runs"]] == [run["run_id"] for run in plain.json()["runs"]]
    assert "GET /v1/external/runs?" in verbose.err
    assert "POST /v1/external/runs answered after" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    assert boarded.token not in verbose.err + log.read_text()
    assert "Say nothing" not in log.read_text()


def test_a_screen_needs_a_file_for_its_log(lone: CommandLine) -> None:
    """What cannot be written is told before anything is opened."""
    result = lone("-v", "runs", "list", "--cached", "--log-file", "/nowhere/log")

    assert result.code == 2
    assert "/nowhere/log cannot be written" in result.err
