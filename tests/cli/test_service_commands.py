import json
from pathlib import Path

import pytest

from service.cli import main
from tests.cli.conftest import CommandLine
from tests.service_process import command


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the program that takes our place inside the test."""

    def execv(_: str, argv: list[str]) -> None:
        assert argv[1:4] == ["-P", "-m", "service"]
        main([*map(str, argv[4:])], prog_name="runwarden service")

    monkeypatch.setattr("os.execv", execv)


@pytest.mark.usefixtures("become")
def test_a_data_folder_may_be_named_before_the_command_too(lone: CommandLine, tmp_path: Path) -> None:
    """It is the service's then; behind the command's name it goes first. Nothing lands in the default folder."""
    before, behind = str(tmp_path / "before"), str(tmp_path / "behind")

    assert lone("--data-dir", before, "service", "org", "create", "One", "--json").code == 0
    assert lone("--data-dir", before, "service", "org", "create", "Two", "--data-dir", behind).code == 0

    assert lone("service", "--data-dir", before, "org", "list", "--json").json()["organizations"]
    assert "--port" in lone("serve", "--help").out
    for folder, slug in ((before, "one"), (behind, "two")):
        assert [each["slug"] for each in command(Path(folder), "org", "list")["organizations"]] == [slug]


@pytest.mark.usefixtures("become")
def test_the_services_commands_print_every_format(lone: CommandLine, tmp_path: Path) -> None:
    """As the other commands do, with the option before or after the name."""
    org = ("service", "org", "list", "--data-dir", str(tmp_path))
    for name in ("=One", "Two"):
        command(tmp_path, "org", "create", name)

    json_first, ndjson = lone("--json", *org), lone(*org, "-o", "ndjson")
    assert [each["name"] for each in json_first.json()["organizations"]] == ["=One", "Two"]
    assert [json.loads(line) for line in ndjson.out.splitlines()] == json_first.json()["organizations"]
    heading, first, _ = lone("service", "-o", "csv", *org[1:]).out.splitlines()
    assert heading.split(",")[:2] == list(json_first.json()["organizations"][0])[:2]
    assert "'=One" in first
    contradiction = lone("--json", *org, "-o", "csv")
    assert (contradiction.code, contradiction.json()["error"]["kind"]) == (2, "usage")
    read_only = lone("--read-only", "service", "org", "create", "One", "--data-dir", str(tmp_path / "made"))
    assert (read_only.code, (tmp_path / "made").exists()) == (2, False)
