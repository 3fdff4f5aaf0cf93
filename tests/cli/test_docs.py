import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from app.actions.refusals import ActionRefusedError
from app.api.errors import ApiError, RateLimitedError
from app.cli.exits import EXIT_BY_KIND, Exit, of_api_error
from app.cli.failures import failure_of
from app.cli.main import root
from app.notify.delivery import RouteError
from storage.errors import StorageError
from tests.waiting import present

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "use" / "commands.md").read_text("utf-8")


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


def test_the_reference_is_made_of_the_commands() -> None:
    """After a change of a command, `make reference` writes the page again."""
    written = runpy.run_path(str(DOCS / "reference.py"))

    assert written["PAGE"].read_text("utf-8") == written["reference"]()


def test_every_option_exit_code_and_kind_is_documented() -> None:
    """A script author needs no source: options by `--help`, the rest by the page."""
    options = {name: [one for one in command.params if isinstance(one, click.Option)] for name, command in ALL.items()}

    assert [(name, one.opts) for name, own in options.items() for one in own if not one.help] == []
    assert all(f"| {code.value} |" in PAGE for code in Exit if code is not Exit.INTERRUPTED)
    undocumented = {kind for kind in EXIT_BY_KIND if f"`{kind}`" not in PAGE}
    assert undocumented <= {"api_error", "refused"}


def descendants(root: Any) -> list[Any]:
    return [root, *(below for child in root.__subclasses__() for below in descendants(child))]


def test_every_kind_of_error_has_an_exit_code() -> None:
    """A new error cannot slip through with another one's code; a bug is left to the process's boundary."""
    known = {*EXIT_BY_KIND, "refused_here"}
    files = [failure_of(error("Broken.", path=Path("/x"))) for error in descendants(StorageError)]
    closed = present(failure_of(RouteError("The route is closed. Open it.")))
    limited = of_api_error(RateLimitedError("Slow down.", retry_after_s=7.0))

    assert {error.kind for error in descendants(ApiError) + descendants(ActionRefusedError)} <= known
    assert [file and (file.exit, file.kind, file.detail["file"]) for file in files] == [
        (2, error.kind, "/x") for error in descendants(StorageError)
    ]
    assert (closed.kind, closed.message, closed.exit) == ("failed", "The route is closed. Open it.", Exit.USAGE)
    assert (limited.exit, limited.as_json()["retry_after_s"]) == (5, 7.0)
    assert failure_of(RuntimeError("bug")) is None
