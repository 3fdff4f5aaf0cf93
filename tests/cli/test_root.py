import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine


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


def test_global_options_work_before_and_after_the_command(lone: CommandLine, tmp_path: Path) -> None:
    """People put them where they think of them."""
    options = ("--data-dir", str(tmp_path / "here"))
    before, after = lone(*options, "config", "check", "--json"), lone("config", "check", "--json", *options)

    assert before.out == after.out
    assert Path(before.json()["data_folder"]).parent == tmp_path / "here"


def test_a_missing_token_is_a_matter_of_configuration(lone: CommandLine) -> None:
    """Exit code 2; what is cached can still be read."""
    result = lone("runs", "list", "--json", RUNWARDEN_TOKEN="")

    assert (result.code, result.json()["error"]["kind"]) == (2, "token")
    assert lone("runs", "list", "--cached", "--json", RUNWARDEN_TOKEN="").code == 0


def test_a_cache_of_another_version_is_replaced_but_a_damaged_ledger_is_an_error(lone: CommandLine) -> None:
    """The answer is as ever, with a remark on stderr, once; a ledger is never rebuilt behind anybody's back."""
    folder = Path(lone("config", "check", "--json").json()["data_folder"])
    folder.mkdir(parents=True)
    with closing(sqlite3.connect(folder / "cache.sqlite3")) as connection:
        connection.execute("CREATE TABLE runs (id INTEGER)")
    (folder / "ledger.sqlite3").write_bytes(b"this is no database, however long one looks at it" * 100)

    first, again = (lone("runs", "list", "--cached", "--json", RUNWARDEN_TOKEN="") for _ in range(2))
    damaged = lone("actions", "list", "--json")

    assert (first.code, again.code, first.json()["runs"]) == (0, 0, [])
    assert "made by another version" in first.err
    assert "made by another version" not in again.err
    assert (damaged.code, damaged.json()["error"]["kind"]) == (2, "database_damaged")
    assert str(folder / "ledger.sqlite3") in damaged.json()["error"]["message"]
