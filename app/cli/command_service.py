"""`runwarden serve` and `runwarden service`: this process is replaced by the self-hosted service."""

import os
import sys
from typing import TYPE_CHECKING, Final, NoReturn

import click

from app.cli.context import Invocation
from app.cli.exits import failed, require_extra

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

DATA_DIR_VARIABLE: Final = "RUNWARDEN_SERVICE_DATA_DIR"
"""The environment variable with the service's data folder."""
PASS_THROUGH: Final = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}


class ServiceCommand(click.Command):
    """A command of the service's command line, which is another program and completes its own words."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        """Return the other program's suggestions for this word."""
        from app.cli.completion import completed_by_service

        before = ["serve"] if self.name == "serve" else []
        return completed_by_service([*before, *ctx.params["arguments"]], incomplete)


ARGUMENTS: Final = click.argument(
    "arguments",
    nargs=-1,
    type=click.UNPROCESSED,
    shell_complete=lambda ctx, _, incomplete: ctx.command.shell_complete(ctx, incomplete),
)


@click.command(cls=ServiceCommand, context_settings=PASS_THROUGH, add_help_option=False)
@ARGUMENTS
@click.pass_obj
def serve(invocation: Invocation, /, *, arguments: tuple[str, ...]) -> NoReturn:
    """Run the self-hosted service in the foreground; its own --data-dir, --host and --port follow."""
    _become(invocation, ["serve", *arguments])


@click.command(cls=ServiceCommand, context_settings=PASS_THROUGH, add_help_option=False)
@ARGUMENTS
@click.pass_obj
def service(invocation: Invocation, /, *, arguments: tuple[str, ...]) -> NoReturn:
    """Administer a self-hosted service: org, token, offer, host, repository, agent."""
    _become(invocation, list(arguments))


def _become(invocation: Invocation, arguments: list[str]) -> NoReturn:
    if invocation.read_only:
        raise failed("read_only", "--read-only cannot be used here: a service and its administration write.")
    require_extra("service")  # Checked here, because the service cannot start without it, and so cannot report it.
    if invocation.data_dir is not None:
        # Means the same before the command's name as after it; after it wins.
        os.environ[DATA_DIR_VARIABLE] = str(invocation.data_dir)
    if invocation.asked_format is not None:
        arguments = ["--output", invocation.asked_format, *arguments]
    sys.stdout.flush()
    # -P: a folder called `service` in the current directory is not ours.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "service", *arguments])
