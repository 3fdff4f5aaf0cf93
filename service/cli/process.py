"""Processes that stay: their log, their errors, and their end."""

import logging
import os
import sys
from collections.abc import Callable
from typing import Final, NoReturn

import click

from service.cli.output import DATABASE_VARIABLE, plain_errors

DATABASE_HELP: Final = (
    "postgresql://user@host/name; SQLite in the data folder if left out. "
    f"With a password, better in {DATABASE_VARIABLE} or ~/.pgpass: everybody on the machine can read a command line."
)


def run_process(run: Callable[[], int]) -> NoReturn:
    """Run to the end, log to stderr, and exit with the status returned; 2 when it cannot start."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    with plain_errors(as_json=False):
        from service.process_lock import ServiceError

        try:
            status = run()
        except ServiceError as error:
            click.echo(f"error: {error}", err=True)
            status = 2
    sys.stdout.flush()
    sys.stderr.flush()
    # Interrupted turns hold their threads on purpose: only the end of the process lets them go.
    os._exit(status)
