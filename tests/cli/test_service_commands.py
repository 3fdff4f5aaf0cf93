import json
from pathlib import Path

import pytest

from service.cli import main
from tests.cli.conftest import CommandLine


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the program that takes our place inside the test."""

    def execv(_: str, argv: list[str]) -> None:
        assert argv[1:4] == ["-P", "-m", "service"]
        main([*map(str, argv[4:])], prog_name="runwarden service")

    monkeypatch.setattr("os.execv", execv)


@pytest.mark.usefixtures("become")
def test_the_services_commands_take_options_before_and_after_their_name(lone: CommandLine, tmp_path: Path) -> None:
    """A data folder behind the command's name goes first; every format is printed as by the other commands."""
    folders = before, behind = [str(tmp_path / name) for name in ("before", "behind")]
    assert lone("--data-dir", before, "service", "org", "create", "=One", "--json").code == 0
    assert lone("--data-dir", before, "service", "org", "create", "Two", "--data-dir", behind).code == 0
    org = ("service", "org", "list", "--data-dir", before)

    listed = [lone("service", "--data-dir", each, "org", "list", "--json").json()["organizations"] for each in folders]
    assert [[one["slug"] for one in each] for each in listed] == [["one"], ["two"]]
    assert lone("--json", *org).json()["organizations"] == listed[0]
    assert [json.loads(line) for line in lone(*org, "-o", "ndjson").out.splitlines()] == listed[0]
    heading, first = lone("service", "-o", "csv", *org[1:]).out.splitlines()
    assert heading.split(",")[:2] == list(listed[0][0])[:2]
    assert "'=One" in first
    assert "--port" in lone("serve", "--help").out
    contradiction = lone("--json", *org, "-o", "csv")
    assert (contradiction.code, contradiction.json()["error"]["kind"]) == (2, "usage")
    read_only = lone("--read-only", "service", "org", "create", "One", "--data-dir", str(tmp_path / "made"))
    assert (read_only.code, (tmp_path / "made").exists()) == (2, False)
