"""The server process: binds, announces itself, serves requests, and drains on SIGTERM or SIGINT."""

import asyncio
import contextlib
import errno
import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import uvicorn

from service.api.app import build
from service.api.context import Context
from service.api.protocol import protocol, warn_once
from service.clock import now_micros
from service.execution.worker import TurnWorker
from service.forge.accounts import OwnAccounts
from service.hosts.health import HealthProbes
from service.hosts.tokens import HostTokens
from service.lab import Lab
from service.observability.log import Masks
from service.observability.metrics import ServiceMetrics
from service.observability.requests import observe_requests
from service.observability.traces import open_tracer
from service.outgoing.mail import mailer_of
from service.page.app import with_page
from service.processes.worker import StartError, announce, build_worker, hold_lock, one_worker, prepare
from service.settings import DataFolder, Settings
from service.store.database import Database
from service.store.rate_limits import RateLimiter
from service.store.runs import RunCounter
from service.store.workers import Doorbell

_logger = logging.getLogger(__name__)
_BACKLOG = 256


def run_server(
    folder: DataFolder,
    host: str,
    port: int,
    database_url: str | None,
    settings: Settings,
    masks: Masks,
    *,
    executes: bool,
    lab: bool,
) -> int:
    """Serve a data folder until a signal arrives; return the exit status.

    `database_url`: the database's address; None for SQLite in the data folder. `executes`: whether this process
    executes turns; otherwise other worker processes do.

    Raises:
        StartError: The folder is in use, or the port is taken.
    """
    folder.create()
    with (
        contextlib.closing(open_tracer(settings.traces, os.environ)) as tracer,
        contextlib.closing(Database(database_url or folder.database_url)) as database,
        contextlib.ExitStack() as locks,
    ):
        # PostgreSQL takes several processes, SQLite only one.
        if database.is_sqlite:
            refusal = f"another service runs on {folder.root}; stop it, or choose another --data-dir"
            locks.enter_context(hold_lock(folder.lock_file, refusal))
        if executes:
            locks.enter_context(one_worker(database, folder))
        database.wait_until_there(threading.Event())
        prepare(database, folder, masks, tracer)
        tokens = HostTokens(database)
        worker = build_worker(database, tokens, folder, settings, tracer) if executes else None
        context = Context(
            database=database,
            settings=settings,
            clock=now_micros,
            expiry_clock=now_micros,
            metrics=ServiceMetrics(database, now_micros, settings.execution.worker_ttl_s),
            rate=RateLimiter(database, settings.limits.requests_per_minute, now_micros),
            mailer=mailer_of(folder, settings.mail),
            probes=HealthProbes(tokens, settings.probing),
            page_key=database.secret("page_token_key"),
            counts=RunCounter(),
            # On PostgreSQL the worker of this process hears the doorbell, too.
            wake=worker.wake if worker is not None and database.is_sqlite else Doorbell(database).ring,
            folder=folder,
            tokens=tokens,
            accounts=OwnAccounts(database, tokens),
            tracer=tracer,
        )
        listener = _bind(host, port)
        if lab and not ip_address(listener.getsockname()[0]).is_loopback:
            listener.close()
            raise StartError(f"the lab is only available on loopback, not on {host}; leave out --lab or --host")
        listener.listen(_BACKLOG)
        status = asyncio.run(_serve(context, worker, listener, has_lab=lab))
        context.probes.close()
        _logger.info("stopped")
        return status


async def _serve(context: Context, worker: TurnWorker | None, listener: socket.socket, *, has_lab: bool) -> int:
    lab = Lab(context) if has_lab else None
    app = with_page(build(context), context) if lab is None else lab
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    asyncio.get_running_loop().set_exception_handler(_report)
    config = uvicorn.Config(
        observe_requests(app, context.metrics.count_request),
        http=protocol(context.settings.limits.request_s, files // 2, context.metrics.count_refusal),
        # Several times this number of connections are accepted before the first of them can be refused.
        backlog=min(_BACKLOG, files // 16),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, int(context.settings.execution.drain_s)),
    )
    server = _Server(config)

    def stop() -> None:
        """Accept no more requests, and exit when the open ones are answered."""
        server.should_exit = True
        server.woken.set()
        context.closing.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    status = 0
    if worker is not None:
        try:
            await asyncio.to_thread(worker.start)
        except Exception:  # The boundary: a service that accepts runs must also execute them.
            _logger.exception("the worker cannot start; the service stops")
            worker, status = None, 1
            stop()
    # The service is ready only when accepted runs can be executed.
    if not server.should_exit:
        host, port = listener.getsockname()[:2]
        host_text = f"[{host}]" if ":" in host else host
        if not ip_address(host).is_loopback:
            _logger.warning("listening beyond this machine without TLS: tokens travel in clear, so add a TLS proxy")
        line = {"base_url": f"http://{host_text}:{port}/v1", "pid": os.getpid(), "data_dir": str(context.folder.root)}
        announce(line | ({} if lab is None else {"lab_token": lab.token}))
    await serving
    if worker is not None:
        await asyncio.to_thread(worker.stop)
    return status


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Given the protocol, asyncio switches off Nagle's delay, which would add 40 ms to each response.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        option = "--port" if error.errno in {errno.EADDRINUSE, errno.EACCES} else "--host"
        raise StartError(f"cannot listen on {host}:{port}: {error.strerror}; choose another {option}") from error
    return listener


class _Server(uvicorn.Server):
    """uvicorn without its signal handling, which would kill the process with the signal and lose the exit status."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.woken = asyncio.Event()

    async def main_loop(self) -> None:
        """Renew the Date header once a second until the end; uvicorn would wake ten times a second to look for it."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.woken.wait(), 1.0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error in the event loop; asyncio reports each connection that it cannot accept."""
    if str(context["message"]).startswith("socket.accept()"):
        warn_once(f"connections cannot be accepted: {context.get('exception')}")
    else:
        loop.default_exception_handler(context)
