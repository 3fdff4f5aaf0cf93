"""`worker`: a process that executes turns and answers nobody; any number of them on PostgreSQL."""

from pathlib import Path

import click

from service.cli.output import DATA_DIR_VARIABLE, DATABASE_VARIABLE, default_data_dir
from service.cli.process import DATABASE_HELP, run_process
from service.settings import DataFolder


@click.command("worker")
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), envvar=DATA_DIR_VARIABLE)
@click.option("--database", "database_url", envvar=DATABASE_VARIABLE, help=DATABASE_HELP)
@click.option("--workers", type=click.IntRange(1, 64), help="Turns executed at the same time.")
def command(data_dir: Path | None, database_url: str | None, workers: int | None) -> None:
    """Execute turns; prints one JSON line when it is ready, and its log on stderr."""

    def run() -> int:
        from service.worker_process import WorkerProcess

        return WorkerProcess(DataFolder(data_dir or default_data_dir()), database_url, workers).run()

    run_process(run)
