"""The worker process: executes turns, has no API, and drains on SIGTERM or SIGINT."""

import contextlib
import fcntl
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from service.clock import now_micros
from service.errors import ServiceError
from service.execution.commits import check_signing
from service.execution.record import TurnRecorder
from service.execution.retention import Retention
from service.execution.sandbox import find
from service.execution.turn import TurnExecution
from service.execution.worker import TurnWorker
from service.forge.poster import post
from service.git import GitCommandError
from service.hosts.rotation import TokenRotation
from service.hosts.tokens import HostTokens
from service.observability.log import Masks
from service.observability.traces import Tracer, open_tracer
from service.outgoing import mail, webhooks
from service.settings import DataFolder, Settings
from service.store import agents, hosts, repositories
from service.store.database import Database, DatabaseClock
from service.triggers.receiver import start_due

_logger = logging.getLogger(__name__)


class StartError(ServiceError):
    """A process cannot start; the text says how to fix it."""


@contextlib.contextmanager
def hold_lock(lock_file: Path, refusal: str) -> Iterator[None]:
    """Hold a lock during the block; the kernel releases it if the process is killed.

    Raises:
        StartError: Another process holds the lock; the text is `refusal`.
    """
    with lock_file.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StartError(refusal) from error
        yield


def run_worker(folder: DataFolder, database_url: str | None, settings: Settings, masks: Masks) -> int:
    """Execute turns until a signal arrives; return the exit status. PostgreSQL takes any number of such processes."""
    folder.create()
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with (
        contextlib.closing(open_tracer(settings.traces, os.environ)) as tracer,
        contextlib.closing(Database(database_url or folder.database_url)) as database,
        one_worker(database, folder),
    ):
        database.wait_until_there(stopping)
        if stopping.is_set():
            return 0
        prepare(database, folder, masks, tracer)
        worker = build_worker(database, HostTokens(database), folder, settings, tracer)
        worker.start()
        announce({"worker": worker.me.executor, "pid": os.getpid(), "data_dir": str(folder.root)})
        # Again and again, since Python does not notice a signal that arrives just before a wait begins.
        while not stopping.wait(1.0):
            pass
        worker.stop()
    return 0


def announce(line: Mapping[str, object]) -> None:
    """Print the line that says that a process is ready, and notify systemd (`Type=notify`)."""
    sys.stdout.write(f"{json.dumps(line)}\n")
    sys.stdout.flush()
    # Removed from the environment, so that git and agents cannot reach systemd.
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if address.startswith(("/", "@")):
        name = f"\0{address[1:]}" if address.startswith("@") else address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifying:
            notifying.sendto(b"READY=1", name)


def prepare(database: Database, folder: DataFolder, masks: Masks, tracer: Tracer) -> None:
    """Bring the database up to date, and mask in the log the variables that hosts, webhooks and agents use."""
    database.migrate()
    folder.note_database(None if database.is_sqlite else database.shown)
    tracer.instrument_database(database)

    def used() -> set[str]:
        with database.read() as connection:
            names = hosts.variables(connection) | repositories.webhook_variables(connection)
            return names.union(agents.variables(connection))

    masks.used = used
    masks.add(used())


@contextlib.contextmanager
def one_worker(database: Database, folder: DataFolder) -> Iterator[None]:
    """Ensure that a SQLite database has one worker process; PostgreSQL takes any number."""
    if not database.is_sqlite:
        yield
        return
    fix = "stop it, or use PostgreSQL (--database) for several"
    file = Path(str(database.url.database)).resolve()
    with contextlib.ExitStack() as locks:
        locks.enter_context(hold_lock(folder.worker_lock_file, f"another worker runs on {folder.root}; {fix}"))
        # Services on two folders may share one file: each would take the other's worker for a dead one.
        locks.enter_context(hold_lock(lock_beside(file), f"another worker runs on {file}; {fix}"))
        yield


def lock_beside(database_file: Path) -> Path:
    """The lock file of a SQLite database's worker, which may have any data folder."""
    return database_file.with_name(f"{database_file.name}.lock")


def build_worker(
    database: Database, tokens: HostTokens, folder: DataFolder, settings: Settings, tracer: Tracer
) -> TurnWorker:
    """Return a worker, not started yet, and log how its agents will be isolated."""
    sandbox = find(settings.execution)
    _logger.log(logging.INFO if sandbox.program else logging.WARNING, "sandbox: %s", sandbox)
    _logger.info("limits of an agent: %s", settings.execution.agent)
    if settings.execution.signing is not None:
        try:
            check_signing(settings.execution.signing.ssh_key)
        except GitCommandError as error:
            _logger.warning("turns will fail: %s", error)
    clock = DatabaseClock(database)
    execution = TurnExecution(TurnRecorder(database, clock), tokens, folder, settings, sandbox, tracer)
    # Retention compares file times, so it needs this machine's clock.
    retention = Retention(database, tokens, folder, settings, now_micros)
    rotating = TokenRotation(database, clock)
    jobs: dict[str, Callable[[str], object]] = {
        "mail": partial(mail.deliver, database, mail.mailer_of(folder, settings.mail), settings, clock, only_due=True),
        "post": partial(post, database, tokens, settings, clock),
        "webhook": partial(webhooks.deliver, database, settings.events, clock),
        "schedule": partial(start_due, database, settings, clock),
        "rotate": lambda _: rotating.run(),
    }
    return TurnWorker(execution, retention, jobs, clock)
