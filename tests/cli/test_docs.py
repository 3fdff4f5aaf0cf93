import runpy
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from app.actions.refusals import ActionRefusedError
from app.api.errors import ApiError, RateLimitedError
from app.cli.exits import EXIT_BY_KIND, Exit, of_api_error
from app.cli.failures import failure_of
from app.cli.main import root
from app.notify.delivery import RouteError
from storage.errors import StorageError

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


def test_help_explains_every_option() -> None:
    """The reference leaves the explanations to `--help`."""
    options = {name: [one for one in command.params if isinstance(one, click.Option)] for name, command in ALL.items()}

    assert [(name, one.opts) for name, own in options.items() for one in own if not one.help] == []


def test_every_exit_code_and_kind_is_documented() -> None:
    """A script author needs no source."""
    assert all(f"| {code.value} |" in PAGE for code in Exit if code is not Exit.INTERRUPTED)
    undocumented = {kind for kind in EXIT_BY_KIND if f"`{kind}`" not in PAGE}
    assert undocumented <= {"api_error", "refused"}


def descendants(root: type) -> list[type]:
    return [root, *(below for child in root.__subclasses__() for below in descendants(child))]


@pytest.mark.parametrize("error", descendants(ApiError) + descendants(ActionRefusedError))
def test_every_kind_of_error_has_an_exit_code(error: type) -> None:
    """A new error cannot slip through with another one's code."""
    assert error.kind == "refused_here" or error.kind in EXIT_BY_KIND  # type: ignore[attr-defined] — both trees have it


@pytest.mark.parametrize("error", descendants(StorageError))
def test_a_file_that_cannot_be_used_is_a_matter_of_configuration(error: type[StorageError]) -> None:
    """Exit code 2, the error's own kind, and the file."""
    failure = failure_of(error("Broken. Mend it.", path=Path("/x")))

    assert failure is not None
    assert (failure.exit, failure.kind, failure.detail["file"]) == (2, error.kind, "/x")


def test_any_error_but_an_unforeseen_one_is_a_failure_with_its_text() -> None:
    """Of git, of a route or of a new kind; a rate limit has its wait. A bug is left to the process's boundary."""
    closed = failure_of(RouteError("The route is closed. Open it."))
    limited = of_api_error(RateLimitedError("Slow down.", retry_after_s=7.0))

    assert closed is not None
    assert (closed.kind, closed.message, closed.exit) == ("failed", "The route is closed. Open it.", Exit.USAGE)
    assert (limited.exit, limited.as_json()["retry_after_s"]) == (5, 7.0)
    assert failure_of(RuntimeError("bug")) is None
