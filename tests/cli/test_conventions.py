"""What people who know other command lines take for granted."""

import click
import pytest

from app.cli import COMMANDS, root
from app.version import __version__
from tests.cli.conftest import CommandLine


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json", "runs", "list", "--cached"],
        ["runs", "--json", "list", "--cached"],
        ["-o", "json", "runs", "list", "--cached"],
        ["runs", "list", "--cached", "-o", "json", "--json"],
    ],
)
def test_the_format_may_stand_anywhere(lone: CommandLine, arguments: list[str]) -> None:
    """Before a command's name as after it."""
    assert lone(*arguments).json()["runs"] == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["runs", "list", "--cached", "--json", "-o", "csv"], "--json"),
        (["-o", "csv", "runs", "list", "--cached", "--json"], "--json"),
        (["runs", "list", "--cached", "-o", "csv", "-o", "table"], "-o"),
        (["--json", "console"], "--json"),
        (["--json"], "--json"),
        (["runs", "list", "--cached", "--limit", "2", "--all"], "--all"),
        (["runs", "list", "--cached", "--active", "--status", "completed"], "--active"),
        (["runs", "list", "--cached", "--status", "failed", "--status", "!failed"], "failed"),
        (["actions", "list", "--limit", "2", "--all"], "--all"),
        (["--profile", "a", "config", "check", "--profile", "b"], "--profile"),
    ],
)
def test_what_contradicts_itself_is_refused(lone: CommandLine, arguments: list[str], named: str) -> None:
    """Neither of two wishes is dropped in silence."""
    result = lone(*arguments)

    assert result.code == 2
    assert named in result.out + result.err


@pytest.mark.parametrize(
    ("arguments", "cure"),
    [
        (["runs", "list", "--cached", "--status", "faild"], "failed"),
        (["runs", "export", "--cached", "--status", "!complete"], "completed"),
        (["runs", "list", "--cached", "--search", "status:wroking"], "working"),
        (["runs", "list", "--cached", "--search", "staus:failed"], "status"),
        (["runz"], "runs"),
        (["runs", "lst"], "list"),
        (["runs", "list", "--cachd"], "--cached"),
        (["actions", "list", "--state", "unkown"], "unknown"),
    ],
)
def test_a_misspelling_is_refused_with_what_was_meant(lone: CommandLine, arguments: list[str], cure: str) -> None:
    """An empty list would pass for the answer."""
    result = lone(*arguments)

    assert result.code == 2
    assert cure in (result.json()["error"]["message"] if "export" in arguments else result.err)


@pytest.mark.parametrize("form", ["csv", "table", "json", "ndjson"])
def test_every_format_prints_the_path(lone: CommandLine, form: str) -> None:
    """No format is silent."""
    assert "config.toml" in lone("config", "path", "-o", form).out


def test_an_export_as_a_table_is_a_table(lone: CommandLine) -> None:
    """NDJSON is the default only."""
    assert lone("runs", "export", "--cached", "-o", "csv").out.startswith("status,")
    assert lone("runs", "export", "--cached", "-o", "table").out == ""


def test_the_version_has_a_short_option(lone: CommandLine) -> None:
    """As with other programs."""
    assert lone("-V").out == lone("--version").out == f"runwarden, version {__version__}\n"


def test_the_list_of_commands_says_what_they_say_themselves() -> None:
    """`--help` imports none of them."""
    context = click.Context(root)
    said = {name: root.get_command(context, name) for name in COMMANDS}

    assert {name: command and command.get_short_help_str(120) for name, command in said.items()} == {
        name: summary for name, (_, summary) in COMMANDS.items()
    }
