"""`serve` and `worker`: the long-running processes, from start to orderly end."""

import contextlib
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NoReturn

import click
from sqlalchemy.exc import SQLAlchemyError

from service.cli import DATA_DIR_VARIABLE
from service.cli.environment import ENVIRONMENT_VARIABLE, EnvironmentFile
from service.cli.maintenance import drain
from service.cli.output import DATABASE_VARIABLE, AdminContext, data_folder, plain_errors
from service.observability.log import Masks, start_log
from service.observability.metrics import operators_token
from service.processes.server import run_server
from service.processes.worker import run_worker
from service.settings import DataFolder, Settings, SettingsError

_DATABASE_HELP: Final = (
    "postgresql://user@host/name; SQLite in the data folder if left out. "
    f"With a password, better in {DATABASE_VARIABLE} or ~/.pgpass: everyone on the machine can read a command line."
)
_data_dir = click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), envvar=DATA_DIR_VARIABLE)
_database = click.option("--database", "database_url", envvar=DATABASE_VARIABLE, help=_DATABASE_HELP)
_workers = click.option("--workers", type=click.IntRange(1, 64), help="Turns executed at the same time.")


def _run_process(folder: DataFolder, workers: int | None, run: Callable[[Settings, Masks], int]) -> NoReturn:
    """Run to the end, log to stderr, and exit with the status returned; 2 when it cannot start."""
    with plain_errors(as_json=False):
        settings = folder.settings()
        if workers is not None:
            execution = settings.execution.model_copy(update={"concurrency": workers})
            settings = settings.model_copy(update={"execution": execution})
        masks = start_log(settings.log.format)
        masks.add(settings.secret_names)

        def check(environment: Mapping[str, str]) -> None:
            for name in (settings.metrics.token_env, settings.page.operator_token_env):
                operators_token(name, environment)
            try:
                used = {*settings.secret_names, *masks.used()}
            except SQLAlchemyError as error:
                raise SettingsError("the database gives no answer, which knows what hosts need") from error
            masks.add(used)
            if gone := sorted(name for name in used if name and os.environ.get(name) and name not in environment):
                names = ", ".join(gone)
                raise SettingsError(f"still in use: {names}; put it back, or write NAME= without a value to remove it")

        def read_again() -> None:
            while signals.get():
                file.reload(check, masks.renew)

        check(os.environ)
        file = click.get_current_context().find_object(EnvironmentFile) or EnvironmentFile()
        # In a thread, since it asks the database; a handler may only put into such a queue.
        signals = SimpleQueue[int]()
        # Without a file, closing a terminal ends what runs in it, as usual.
        if os.environ.get(ENVIRONMENT_VARIABLE) or not os.isatty(0):
            signal.signal(signal.SIGHUP, lambda number, _: signals.put(number))
            threading.Thread(target=read_again, name="environment", daemon=True).start()
        _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Where even this is forbidden, the limit stays as it is.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
        status = run(settings, masks)
    sys.stdout.flush()
    sys.stderr.flush()
    # Interrupted turns hold their threads until the process ends.
    os._exit(status)


@click.command("serve")
@_data_dir
@_database
@click.option("--no-worker", is_flag=True, help="Only accept: runwarden service worker executes, here or elsewhere.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8400, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@_workers
@click.option("--lab", is_flag=True, help="Open /_lab: faults, shifted expiry and made-up runs, on loopback only.")
@click.option("--stop-with-stdin", is_flag=True, help="End when standard input does: with the process that started it.")
def serve(
    data_dir: Path | None,
    database_url: str | None,
    host: str,
    port: int,
    workers: int | None,
    *,
    no_worker: bool,
    lab: bool,
    stop_with_stdin: bool,
) -> None:
    """Run the service; prints one JSON line when it accepts connections, and its log on stderr."""

    def stop_at_end_of_stdin() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    if stop_with_stdin:
        threading.Thread(target=stop_at_end_of_stdin, name="stdin watch", daemon=True).start()
    folder = data_folder(data_dir)
    run = partial(run_server, folder, host, port, database_url, executes=not no_worker, lab=lab)
    _run_process(folder, workers, run)


@click.command("worker")
@_data_dir
@_database
@_workers
@click.option("--drain", "drains", is_flag=True, help="Let those of this machine finish their turns and begin no more.")
def worker(data_dir: Path | None, database_url: str | None, workers: int | None, *, drains: bool) -> None:
    """Execute turns; prints one JSON line when it is ready, and its log on stderr."""
    folder = data_folder(data_dir)
    if drains:
        with plain_errors(as_json=False):
            drain(AdminContext(folder, "table", database_url), folder.settings().execution.worker_ttl_s)
        return
    _run_process(folder, workers, partial(run_worker, folder, database_url))
