from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from app.cli import root
from app.cli.exits import EXIT_BY_KIND, Exit
from app.cli.options import global_options, output_options

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text("utf-8")


def commands(group: click.Group, path: tuple[str, ...] = ("runwarden",)) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


ALL = dict(commands(root))


def test_every_documented_command_exists_and_every_command_is_documented() -> None:
    """One heading each, and no heading for what there is not."""
    headings = [line.split("`")[1] for line in PAGE.splitlines() if line.startswith("### `runwarden")]

    documented = {
        " ".join(word for word in heading.split() if word.islower() and word[0].isalpha()) for heading in headings
    }
    assert documented == set(ALL)


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_option_is_documented(name: str) -> None:
    """In the command's own section, or where options shared by many are described."""
    section = PAGE.partition(f"### `{name}")[2].partition("\n### ")[0]
    shared = {option for each in [*global_options(hidden=False), *output_options()] for option in each.opts}
    if name == "runwarden runs continue":
        section += PAGE.partition("### `runwarden runs start")[2].partition("\n### ")[0]
    if name == "runwarden runs export":
        section += PAGE.partition("### `runwarden runs list")[2].partition("\n### ")[0]

    if name == "runwarden actions export":
        section += PAGE.partition("### `runwarden actions list")[2].partition("\n### ")[0]

    own = {option for param in ALL[name].params if isinstance(param, click.Option) for option in param.opts}
    missing = {option for option in own - shared if f"`{option}" not in section}
    assert not missing


def test_every_exit_code_and_kind_is_documented() -> None:
    """A script author needs no source."""
    assert all(f"| {code.value} |" in PAGE for code in Exit if code is not Exit.INTERRUPTED)
    undocumented = {kind for kind in EXIT_BY_KIND if f"`{kind}`" not in PAGE}
    assert undocumented <= {"api_error", "refused"}
