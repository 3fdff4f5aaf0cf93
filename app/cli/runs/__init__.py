"""`runwarden runs`: what the service's runs are doing, and starting more of them."""

import click

from app.cli.options import Noun
from app.cli.runs.listing import export, list_runs
from app.cli.runs.show import show
from app.cli.runs.start import continue_run, start
from app.cli.runs.wait import wait


@click.group(cls=Noun)
def runs() -> None:
    """List, show, start, continue, wait for and export runs."""


for command in (list_runs, show, start, continue_run, wait, export):
    runs.add_command(command)
