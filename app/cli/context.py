"""One invocation: the global options, and the engine, opened when a command needs it."""

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from app.cli import Format
from app.start.streams import NotPrintedError

if TYPE_CHECKING:
    from pathlib import Path
    from signal import Signals

    from app.cli.exits import Exit
    from app.cli.output import Column, Output, Rows
    from app.engine.engine import Engine
    from app.engine.files import ProfileFiles
    from app.profiles import Choice, Profile, Settings
    from app.profiles.token import Token, TokenError
    from storage.ledger import Ledger
    from storage.state import State

T = TypeVar("T")


class StoppedError(Exception):
    """A signal stopped the command before its result."""


class Invocation:
    """Filled in while the options are parsed, used by the commands.

    What cannot be used raises `ConfigError`, `TokenError` or `StorageError`; a file that cannot be written raises
    `CommandFailedError`.
    """

    def __init__(self) -> None:
        self.config_file: Path | None = None
        self.profile_name: str | None = None
        self.data_dir: Path | None = None
        self.read_only = False
        self.token: Token | TokenError | None = None
        """What `--token-stdin` read, or None if the profile names the token's source."""
        self.verbose = False
        self.log_file: Path | None = None
        """The log's file, or None for stderr, if `verbose` is set."""
        self.asked_format: Format | None = None
        """The format from `--json` or `--output`. Without one, each command uses its own default."""
        self.given: dict[str, tuple[str, Any]] = {}
        """The global options given so far: attribute of this class to the option's name and its value."""
        self.is_plugin = False
        """Whether failures are printed in the monitoring-plugin convention."""
        self.beside_error: Mapping[str, object] = {}
        """Keys to add to a failure's JSON document: facts found before the command failed."""
        self.rows: Rows[Any] | None = None
        """The list that is being printed. A failure is printed after its rows, inside the same JSON document."""
        self.warnings: list[str] = []
        """Problems outside the command's own work, such as a file that could not be written."""
        self.outcome: Exit | None = None
        """The exit code of a settled write, even if its document cannot be printed."""
        self.stopped_by: Signals | None = None
        self.at_second_signal: Callable[[Signals], None] | None = None
        """Called at each further signal. Without it, the second one ends the process."""
        self._noted: set[str] = set()
        """Remarks printed so far: the settings may be read twice, and must not repeat them."""

    @property
    def output(self) -> "Output":
        from app.cli.output import Output  # slow to import, and help does not need it

        is_terminal = sys.stdout.isatty()
        width = None
        if is_terminal:
            import shutil  # it imports every compression

            width = shutil.get_terminal_size().columns
        colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return Output(self.asked_format or Format.TABLE, sys.stdout, sys.stderr, width, colour)

    @contextmanager
    def exporting(self, out: "Path | None", key: str, columns: "Sequence[Column[T]]") -> "Iterator[Rows[T]]":
        """Print many items as they come on stdout (None, or `-`), or into a file (0600), whole or not at all."""
        from app.cli.exits import command_error
        from app.cli.output import Rows
        from app.engine.atomic_file import replacing

        if out is None or str(out) == "-":
            self.rows = rows = Rows(self.output, key, columns)
            yield rows
            return
        try:
            with replacing(out) as file:
                rows = Rows(self.output._replace(stdout=file, width=None, colour=False), key, columns)
                yield rows
        except (OSError, NotPrintedError) as error:
            reason = error.reason if isinstance(error, NotPrintedError) else error.strerror
            raise command_error("usage", f"{out} cannot be written: {reason}.") from error
        self.output.note(f"{rows.count} {key} written to {out}")

    def warn(self, message: str) -> None:
        """Report on stderr, and in a write's document, a problem that does not change the outcome."""
        if message not in self.warnings:
            self.warnings.append(message)
            self.output.note(f"runwarden: warning: {message}")

    def settings(self, *, quietly: bool = False) -> "Settings":
        """The configuration, with the options on top; prints which variables they override, unless `quietly`."""
        from app.profiles import load

        settings = load(self.config_file, os.environ, self._choice())
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
        from app.profiles import Choice

        return Choice(self.config_file, self.profile_name, self.data_dir)

    def profile(self, settings: "Settings") -> "Profile":
        """The profile that the command line chose, or the default one."""
        from msgspec.structs import replace

        from app.profiles.token import ReadToken

        profile = settings.profile(self.profile_name)
        if self.token is not None:
            profile = replace(profile, token=ReadToken(self.token))
        return replace(profile, read_only=True) if self.read_only else profile

    @asynccontextmanager
    async def state(self) -> "AsyncIterator[State]":
        from app.profiles import STATE_FILE, data_folder
        from storage.state import State

        settings = self.settings()
        async with await State.open(data_folder(settings, self.profile(settings)) / STATE_FILE) as state:
            yield state

    @asynccontextmanager
    async def engine(self, *, needs_token: bool, is_live: bool = False) -> "AsyncIterator[Engine]":
        """The engine, open for the block; cached data is read without a token.

        `is_live`: the command shows what the service answers, and does so even if another process holds the cache.
        """
        import asyncio
        from pathlib import Path
        from tempfile import TemporaryDirectory

        from app.engine.engine import Engine
        from app.engine.events import Event, StorageFailed
        from app.profiles import CACHE_FILE, data_folder
        from storage.cache.opening import is_held

        def announce(event: Event) -> None:
            if isinstance(event, StorageFailed):
                self.warn(event.message)

        settings = self.settings()
        profile = self.profile(settings)
        cache_file = None
        async with AsyncExitStack() as stack:
            if is_live and await asyncio.to_thread(is_held, path := data_folder(settings, profile) / CACHE_FILE):
                self.warn(f"The answer is not kept: another process holds the cache ({path}).")
                cache_file = Path(stack.enter_context(TemporaryDirectory())) / CACHE_FILE
            engine = await Engine.open(settings, profile, actor="cli", cache_file=cache_file)
            engine.events.subscribe(announce)
            await stack.enter_async_context(self._closing(engine))
            if needs_token and engine.token_problem is not None:
                raise engine.token_problem
            yield engine

    @asynccontextmanager
    async def files(self) -> "AsyncIterator[ProfileFiles]":
        """The cache and the ledger alone, which are open much sooner than an engine."""
        from app.engine.files import ProfileFiles

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
            except Exception as error:  # noqa: BLE001 — the command has succeeded, and its result must still be printed
                self.warn(f"Closing failed: {error!r}")

    @asynccontextmanager
    async def writer(self, *, dry_run: bool = False) -> "AsyncIterator[Engine]":
        """The engine of a write command, which first prints the service it goes to."""
        async with self.engine(needs_token=not dry_run) as engine:
            if not self.output.format.is_json:
                begun = "Nothing is sent to" if dry_run else "Writing to"
                self.output.note(f"{begun} {engine.client.base_url} (profile {engine.profile.name}).")
            yield engine

    @asynccontextmanager
    async def ledger(self) -> "AsyncIterator[Ledger]":
        """The profile's ledger alone, open for as long as the block lasts: neither a token nor the cache is needed."""
        from app.engine.files import open_ledger

        settings = self.settings()
        async with await open_ledger(settings, self.profile(settings), actor="cli") as ledger:
            self._warn_of(ledger)
            yield ledger

    def _warn_of(self, ledger: "Ledger") -> None:
        if ledger.problem is not None:
            self.warn(f"The ledger can only be read: {ledger.problem}")
