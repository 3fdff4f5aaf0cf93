"""One invocation: the global options, and the engine, opened when a command needs it."""

import gc
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

from app.cli.output import Column, Format, Output, Rows, into_file

if TYPE_CHECKING:
    from app.cli.exits import Exit
    from app.config import Choice, Profile, Settings
    from app.engine import Engine
    from app.files import ProfileFiles
    from storage.ledger import Ledger
    from storage.state import State

T = TypeVar("T")

STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedError(Exception):
    """A signal ended the command before it had an answer."""


@dataclass
class Invocation:
    """Filled in while the options are parsed, used by the commands."""

    config_file: Path | None = None
    profile_name: str | None = None
    data_dir: Path | None = None
    read_only: bool = False
    token_stream: TextIO | None = None
    """Holds the token from `--token-stdin`. None: the profile names its source."""
    verbose: bool = False
    log_file: Path | None = None
    """The log's file. None: stderr, if `verbose` is set."""
    asked_format: Format | None = None
    """The format from `--json` or `--output`. None: each command uses its own default."""
    given: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """The global options given so far: attribute of this class to the option's name and its value."""
    is_plugin: bool = False
    """Whether failures are printed in the monitoring-plugin convention."""
    beside_error: Mapping[str, object] = field(default_factory=dict)
    """Keys to add to a failure's JSON document: what the command found out before it failed."""
    rows: Rows[Any] | None = None
    """The list that is being printed. A failure is printed after its rows, inside the same JSON document."""
    warnings: list[str] = field(default_factory=list)
    """Problems besides the command's own work, such as a file that could not be written."""
    outcome: "Exit | None" = None
    """The exit code of a settled write: it holds even if its document cannot be printed."""
    stopped_by: signal.Signals | None = None
    """The signal that ended the command early, if any."""
    at_second_signal: "Callable[[signal.Signals], None] | None" = None
    """Called at each further signal. None: the second one ends the process."""
    _noted: set[str] = field(default_factory=set)
    """Remarks printed so far: the settings may be read twice, and must not repeat them."""

    @property
    def format(self) -> Format:
        """The format asked for; else a table."""
        return self.asked_format or Format.TABLE

    @property
    def output(self) -> Output:
        """The printer, in the chosen format."""
        return Output.standard(self.format)

    def warn(self, message: str) -> None:
        """Report on stderr, and in a write's document, a problem that does not change the outcome."""
        if message not in self.warnings:
            self.warnings.append(message)
            self.output.note(f"runwarden: warning: {message}")

    @contextmanager
    def exporting(self, out: Path | None, key: str, columns: Sequence[Column[T]]) -> Iterator[Rows[T]]:
        """Print many items into a file, whole or not at all, or as they come on stdout (None, or `-`).

        Raises:
            CommandFailedError: The file cannot be written.
        """
        if out is None or str(out) == "-":
            self.rows = rows = Rows(self.output, key, columns)
            yield rows
            return
        with into_file(out, self.output) as output:
            rows = Rows(output, key, columns)
            yield rows
        self.output.note(f"{rows.count} {key} written to {out}")

    def settings(self, *, quietly: bool = False) -> "Settings":
        """The configuration, with the options on top; prints which variables they override, unless `quietly`.

        Raises:
            ConfigError: It cannot be used.
        """
        from app.config import config_path, load

        settings = load(config_path(self.config_file, os.environ), os.environ, self._choice())
        for line in settings.unused:
            if line not in self._noted and not quietly:
                self._noted.add(line)
                self.output.note(line)
        return settings

    @property
    def command_line(self) -> str:
        """The beginning of a command with the same configuration, profile and data folder, for printed advice."""
        return self._choice().command_line

    def _choice(self) -> "Choice":
        from app.config import Choice

        return Choice(self.config_file, self.profile_name, self.data_dir)

    def profile(self, settings: "Settings") -> "Profile":
        """The chosen profile.

        Raises:
            ConfigError: There is no such profile.
        """
        from msgspec.structs import replace

        from app.config.token import StreamToken

        profile = settings.profile(self.profile_name)
        if self.token_stream is not None:
            profile = replace(profile, token=StreamToken(self.token_stream))
        return replace(profile, read_only=True) if self.read_only else profile

    @asynccontextmanager
    async def state(self) -> "AsyncIterator[State]":
        """The automations' state, open for the block.

        Raises:
            ConfigError: The configuration cannot be used.
            StorageError: The file cannot be used.
        """
        from app.config import STATE_FILE, data_folder
        from storage.state import State

        settings = self.settings()
        async with await State.open(data_folder(settings, self.profile(settings)) / STATE_FILE) as state:
            yield state

    @asynccontextmanager
    async def engine(self, *, needs_token: bool) -> "AsyncIterator[Engine]":
        """The engine, open for the block; cached data is read without a token.

        Raises:
            ConfigError: The configuration cannot be used.
            TokenError: There is no usable token, and one is needed.
            StorageError: A file of the data folder cannot be used.
        """
        from app.engine import Engine
        from app.events import Event, StorageFailed

        def announce(event: Event) -> None:
            if isinstance(event, StorageFailed):
                self.warn(event.message)

        settings = self.settings()
        engine = await Engine.open(settings, self.profile(settings), actor="cli", announce=announce)
        async with self._closing(engine):
            if needs_token and engine.token_problem is not None:
                raise engine.token_problem
            yield engine

    @asynccontextmanager
    async def files(self) -> "AsyncIterator[ProfileFiles]":
        """The cache and the ledger alone, which are open much sooner than an engine; raises as `engine`."""
        from app.files import ProfileFiles

        settings = self.settings()
        files = await ProfileFiles.open(settings, self.profile(settings), actor="cli")
        async with self._closing(files):
            yield files

    @asynccontextmanager
    async def _closing(self, opened: "Engine | ProfileFiles") -> AsyncIterator[None]:
        try:
            if opened.cache.set_aside is not None:
                self.output.note(str(opened.cache.set_aside))
            self._warn_of(opened.ledger)
            yield
        finally:
            try:
                await opened.close()
            except Exception as error:  # noqa: BLE001 — the command's work is done: its result must not be lost with this
                self.warn(f"Closing failed: {error!r}")

    @asynccontextmanager
    async def writer(self, *, dry_run: bool = False) -> "AsyncIterator[Engine]":
        """The engine of a write command, which first prints the service it goes to; raises as `engine`."""
        async with self.engine(needs_token=not dry_run) as engine:
            if not self.output.format.is_json:
                begun = "Nothing is sent to" if dry_run else "Writing to"
                self.output.note(f"{begun} {engine.client.base_url} (profile {engine.profile.name}).")
            yield engine

    @asynccontextmanager
    async def ledger(self) -> "AsyncIterator[Ledger]":
        """The profile's ledger alone, open for as long as the block lasts: neither a token nor the cache is needed.

        Raises:
            ConfigError: The configuration cannot be used.
            StorageError: The ledger cannot be opened.
        """
        from app.files import open_ledger

        settings = self.settings()
        async with await open_ledger(settings, self.profile(settings), actor="cli") as ledger:
            self._warn_of(ledger)
            yield ledger

    def _warn_of(self, ledger: "Ledger") -> None:
        if ledger.problem is not None:
            self.warn(f"The ledger can only be read: {ledger.problem}")

    def go_on(self) -> None:
        """Raise if a signal asked the command to end.

        A write settles its outcome even when it is cancelled, so a batch has to check between two writes.

        Raises:
            asyncio.CancelledError: A signal asked the command to end.
        """
        import asyncio

        if self.stopped_by is not None:
            raise asyncio.CancelledError

    def run(self, work: Callable[[], Coroutine[None, None, T]]) -> T:
        """Run a command's work on an event loop; a signal cancels it, so that it can settle what it began.

        Raises:
            StoppedError: A signal cancelled the work before it had a result.
        """
        import asyncio

        async def stoppable() -> T:
            self._listen()
            return await work()

        self.begin_log()
        # Imported modules live until the process ends: the collector need not look at them.
        gc.freeze()
        gc.enable()
        try:
            return asyncio.run(stoppable())
        except asyncio.CancelledError as error:
            raise StoppedError from error

    def begin_log(self) -> None:
        """Begin the log that the options ask for.

        Raises:
            CommandFailedError: Its file cannot be written.
        """
        if self.verbose or self.log_file is not None:
            from app.cli.logs import begin

            begin(verbose=self.verbose, file=self.log_file)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Let a person answer a prompt within `run`: it blocks the loop, so a signal ends the process at once."""
        import asyncio

        loop = asyncio.get_running_loop()
        for number in STOPPING:
            loop.remove_signal_handler(number)
        yield
        self._listen()

    def _listen(self) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        task = asyncio.current_task()

        def stop(number: signal.Signals) -> None:
            self.stopped_by = number
            for each in STOPPING:
                loop.remove_signal_handler(each)
                # A second signal ends the process at once; the ledger knows what was begun.
                signal.signal(each, signal.SIG_DFL)
                if self.at_second_signal is not None:
                    loop.add_signal_handler(each, self.at_second_signal, each)
            if task is not None:
                task.cancel()

        for number in STOPPING:
            loop.add_signal_handler(number, stop, number)
