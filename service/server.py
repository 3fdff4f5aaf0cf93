"""The server: binds, announces itself, serves, and drains on SIGTERM or SIGINT."""

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import IO, Any

import uvicorn

from service.api.app import build
from service.api.context import Context
from service.api.protocol import HttpProtocol
from service.api.rate import TokenBuckets
from service.clock import now_micros
from service.execution import processes
from service.execution.sandbox import NoSandboxError, find
from service.execution.turn import TurnExecution
from service.execution.worker import TurnWorker
from service.hosts.health import HealthProbes
from service.lab import installed
from service.mail.post import Post, PostRounds, mailer_of
from service.settings import DataFolder, Settings
from service.store.database import Database

_log = logging.getLogger(__name__)
_BACKLOG = 256


class ServiceError(Exception):
    """The service cannot start; the text names the cure."""


class RunningService:
    """One service process over one data folder."""

    def __init__(self, folder: DataFolder, host: str, port: int, concurrency: int | None, *, lab: bool = False) -> None:
        self._folder = folder
        self._address = (host, port)
        self._concurrency = concurrency
        self._lab = lab
        self._failed = False

    def run(self) -> int:
        """Serve until a signal comes; return the exit status.

        Raises:
            ServiceError: The folder is in use, the port is taken, or a required sandbox is missing.
        """
        self._folder.create()
        settings = self._folder.settings()
        with self._alone(), contextlib.closing(Database(self._folder.database_url)) as database:
            database.migrate()
            self._sweep()
            worker = self._worker(database, settings)
            context = _context(self._folder, settings, database, worker)
            listener = self._bind()
            post = Post(database, context.mailer, settings.mail, context.clock)
            with contextlib.closing(PostRounds(post, settings.mail)):
                status = asyncio.run(self._serve(context, worker, listener))
            context.probes.close()
            _log.info("stopped")
            return status

    async def _serve(self, context: Context, worker: TurnWorker, listener: socket.socket) -> int:
        app, extra = installed(context) if self._lab else (build(context), {})
        config = uvicorn.Config(
            app,
            http=HttpProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=max(1, int(context.settings.execution.drain_s)),
        )
        server = _Server(config, lambda: self._announce(listener, extra))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, server.leave)
        starting = threading.Thread(target=self._start_worker, args=(worker, server, loop), name="worker-start")
        starting.start()
        await server.serve(sockets=[listener])
        await asyncio.to_thread(starting.join)
        if self._failed:
            return 1
        idle = await asyncio.to_thread(worker.stop, context.settings.execution.drain_s)
        _log.info("drained" if idle else "turns were interrupted; they start again with the service")
        return 0

    def _start_worker(self, worker: TurnWorker, server: "_Server", loop: asyncio.AbstractEventLoop) -> None:
        try:
            worker.start()
        except Exception:  # noqa: BLE001 — the boundary: a service that accepts and never executes must not live
            _log.exception("the worker cannot start; the service ends")
            self._failed = True
            loop.call_soon_threadsafe(server.leave)

    def _worker(self, database: Database, settings: Settings) -> TurnWorker:
        try:
            sandbox = find(settings.execution.sandbox)
        except NoSandboxError as error:
            raise ServiceError(str(error)) from error
        _log.log(logging.INFO if sandbox.program else logging.WARNING, "sandbox: %s", sandbox)
        return TurnWorker(
            database,
            TurnExecution(database, self._folder, settings.execution, sandbox, now_micros),
            now_micros,
            sandbox=str(sandbox),
            concurrency=self._concurrency or settings.execution.concurrency,
            ttl_s=settings.execution.worker_ttl_s,
            alone=True,
        )

    def _bind(self) -> socket.socket:
        host, port = self._address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # With the protocol named, asyncio switches Nagle's delay off for what is accepted (40 ms an answer otherwise).
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            raise ServiceError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from error
        if self._lab and not _is_loopback(listener.getsockname()[0]):
            listener.close()
            raise ServiceError(f"the lab opens on loopback only, not on {host}; leave --lab or --host out")
        listener.listen(_BACKLOG)
        return listener

    def _announce(self, listener: socket.socket, extra: Mapping[str, str]) -> None:
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        if not _is_loopback(host):
            _log.warning("listening beyond this machine without TLS: put a TLS proxy in front, tokens travel in clear")
        line = {"base_url": f"http://{shown}:{port}/v1", "pid": os.getpid(), "data_dir": str(self._folder.root)}
        line |= extra
        sys.stdout.write(f"{json.dumps(line)}\n")
        sys.stdout.flush()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[IO[Any]]:
        # Held until the process ends, however it ends: whoever gets it knows that every other worker is dead.
        with self._folder.lock_file.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ServiceError(
                    f"another service runs on {self._folder.root}; stop it, or choose another --data-dir"
                ) from error
            yield lock

    def _sweep(self) -> None:
        """Remove what a killed predecessor left: agents without a master, and their workspaces."""
        killed = processes.kill_marked(f"RUNWARDEN_RESULT={self._folder.work}{os.sep}")
        if killed:
            _log.warning("ended %d processes that a killed service had left", killed)
        for left in self._folder.work.iterdir():
            shutil.rmtree(left, ignore_errors=True)


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling, which ends the process by the signal instead of an exit status."""

    def __init__(self, config: uvicorn.Config, announce: Any) -> None:
        super().__init__(config)
        self._announce = announce

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    def leave(self) -> None:
        """Stop accepting and end when the open requests are answered."""
        self.should_exit = True


def _is_loopback(host: str) -> bool:
    return host == "::1" or host.startswith("127.")


def _context(folder: DataFolder, settings: Settings, database: Database, worker: TurnWorker) -> Context:
    return Context(
        database=database,
        settings=settings,
        clock=now_micros,
        expiry_clock=now_micros,
        rate=TokenBuckets(settings.limits.requests_per_minute),
        mailer=mailer_of(folder, settings.mail, os.environ),
        probes=HealthProbes(settings.probing),
        page_key=database.secret("page_token_key"),
        wake=worker.wake,
    )
