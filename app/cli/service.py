"""`runwarden serve` and `runwarden service`: this process is replaced by the self-hosted service."""

import os
import sys
from typing import Final, NoReturn

import click

from app.cli.context import Invocation
from app.cli.exits import failed, require_extra

DATA_DIR_VARIABLE: Final = "RUNWARDEN_SERVICE_DATA_DIR"
"""The variable with the service's data folder."""
PASS_THROUGH: Final = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}


@click.command(context_settings=PASS_THROUGH, add_help_option=False, short_help="Run the self-hosted service.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def serve(invocation: Invocation, /, *, arguments: tuple[str, ...]) -> NoReturn:
    """Run the self-hosted service in the foreground; its own --data-dir, --host and --port follow."""
    _become(invocation, ["serve", *arguments])


@click.command(
    context_settings=PASS_THROUGH, add_help_option=False, short_help="Administer a self-hosted service's data folder."
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def service(invocation: Invocation, /, *, arguments: tuple[str, ...]) -> NoReturn:
    """Administer a self-hosted service: org, token, offer, host, repository, agent."""
    _become(invocation, list(arguments))


def _become(invocation: Invocation, arguments: list[str]) -> NoReturn:
    if invocation.read_only:
        raise failed("read_only", "--read-only cannot be used here: a service and its administration write.")
    require_extra("service")  # Checked before this process is replaced: the service itself could not say it.
    if invocation.data_dir is not None:
        # Means the same before the command's name as after it; after it wins.
        os.environ[DATA_DIR_VARIABLE] = str(invocation.data_dir)
    sys.stdout.flush()
    # -P: a folder called `service` in the current directory is not ours.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "service", *arguments])  # noqa: S606 — no shell
