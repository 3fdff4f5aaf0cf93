"""The self-hosted service, as a process of its own: this process turns into it."""

import os
import sys
from importlib.util import find_spec
from typing import Final, NoReturn

import click

from app.cli.context import Invocation
from app.cli.exits import failed

REQUIRED: Final = ("service", "fastapi", "uvicorn", "sqlalchemy", "dbos")
"""Packages of the `service` extra that have to be there before the process is handed over."""
DATA_DIR_VARIABLE: Final = "RUNWARDEN_SERVICE_DATA_DIR"
"""By which the service is told its folder, as its own documentation says."""
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
        raise failed("read_only", "--read-only is for consoles and commands: a service, and its administration, write.")
    missing = [name for name in REQUIRED if find_spec(name) is None]
    if missing:
        raise failed(
            "missing_extra",
            f"The service's part is not installed ({', '.join(missing)} missing). "
            "Install it with: pipx install 'runwarden[service]', or pip install 'runwarden[service]'.",
            missing=list(missing),
        )
    if invocation.data_dir is not None:
        # Given before the command's name it means the same as behind it, where it wins.
        os.environ[DATA_DIR_VARIABLE] = str(invocation.data_dir)
    sys.stdout.flush()
    # -P: a folder called `service` where the person happens to stand is not ours.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "service", *arguments])  # noqa: S606 — no shell is wanted
