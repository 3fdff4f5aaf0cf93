"""What people who know other command lines take for granted."""

import shlex

from app.cli.examples import EXAMPLES
from tests.cli.conftest import CommandLine
from tests.cli.test_docs import ALL
from tests.distribution.test_documents import fault


def test_a_contradiction_or_a_misspelling_is_refused(lone: CommandLine) -> None:
    """Neither of two wishes is dropped in silence; the format may be anywhere."""
    for line in ("--json runs list --cached", "runs -o json list --cached", "runs list --cached -o json --json"):
        assert lone(*line.split()).json()["runs"] == []
    for line, named in (
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
        ("runs export --cached --status !complete", "completed"),
        ("runs list --cached --search status:wroking", "working"),
        ("runs list --cached --search staus:failed", "Did you mean status:?"),
        ("runs list -R https://github.com/acme/api --cached", "owner/repo"),
        ("runz", "runs"),
        ("runs lst", "list"),
        ("runs list --cachd", "--cached"),
        ("actions list --state unkown", "unknown"),
    ):
        result = lone(*line.split())
        assert (result.code, named in result.out + result.err) == (2, True), line


def test_a_mistake_on_the_command_line_is_json_too(lone: CommandLine) -> None:
    """Exit code 2, and nothing on stderr that a script would have to parse; without JSON stdout stays empty."""
    for line in (
        "runs bogus --json",
        "runs list --json --bogus",
        "runs list --bogus -o json",
        "runs list --output=ndjson --limit 0",
        "runs start --json go",
        "runs list --from yesterday --json",
        "runs list --from -1h --to -2h --json",
        "runs wait r --timeout soon --json",
        "runs wait '' --json",
        "runs show '' --json",
        "actions show ' ' --json",
        "runs start -R nowhere go --json",
        "runs start -R acme/api --metadata novalue go --json",
        "runs start -R acme/api --metadata a=1 --metadata a=2 go --json",
        "runs start -R acme/api --json",
        "actions resolve act_x --json",
        "actions resolve act_x --not-created --send-again --json",
    ):
        arguments = shlex.split(line)
        result, told = lone(*arguments), lone(*(each for each in arguments if "json" not in each and each != "-o"))
        assert (result.code, result.json()["error"]["kind"]) == (2, "usage"), line
        assert result.json()["error"]["message"]
        assert (told.code, told.out, bool(told.err)) == (2, "", True), line


def test_every_command_and_option_of_an_example_exists() -> None:
    """As it is typed; what stands behind a pipe may be another program's."""
    calls = [part for shown in EXAMPLES.values() for each in shown for part in f"runwarden {each}".split(" | ")]
    ours = [part.removeprefix("xargs ") for part in calls if "runwarden" in part]

    assert set(EXAMPLES) <= {name.partition(" ")[2] for name in ALL} | {" ".join(name.split()[1:-1]) for name in ALL}
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
    """On stderr or in a file; stdout stays what it was. A file that cannot be written is reported first."""
    nowhere = boarded("-v", "runs", "list", "--cached", "--log-file", "/nowhere/log")
    plain, verbose = boarded("runs", "list", "--json"), boarded("-v", "runs", "list", "--json")
    boarded("runs", "start", "-R", "acme/api", "Say nothing of this.", "--log-file", "log", "-v")
    log = boarded.home / "log"

    assert (nowhere.code, "/nowhere/log cannot be written" in nowhere.err) == (2, True)
    assert not plain.err
    assert [run["run_id"] for run in verbose.json()["runs"]] == [run["run_id"] for run in plain.json()["runs"]]
    assert "GET /v1/external/runs?" in verbose.err
    assert "POST /v1/external/runs answered after" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600
    assert boarded.token not in verbose.err + log.read_text()
    assert "Say nothing" not in log.read_text()
