"""The demo: the service and the console together on one machine, with nothing to configure."""

import asyncio
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from app.config import Profile, Settings, load
from app.demo.history import make as make_history
from app.demo.world import DemoError, World, build

Show = Callable[[Settings, Profile], int]
"""Shows a profile until the user leaves; returns the exit code."""


def run_demo(show: Show | None, *, keep: bool, folder: Path | None) -> int:
    """Build the demo's world, show it until the user leaves, and take it down; the process's exit code.

    Without `show` the service runs until SIGINT or SIGTERM; without a folder everything lies in a new temporary one.

    Raises:
        DemoError: The demo could not be set up; the message says what to do.
    """
    with _ended_by_signals(), _folder(folder, keep=keep) as place, _world(place) as world:
        settings, profile = world.configuration()
        _say("Executing a few runs on them…")
        asyncio.run(make_history(settings, profile))
        if show is None:
            print(world.announcement(), flush=True)  # noqa: T201 — the line that scripts wait for
            status = world.service.process.wait()
            log = world.log.read_text(errors="replace")
            raise DemoError(f"The demo's service ended by itself, with status {status}.", log)
        return show(settings, profile)
    return 0  # A demo without a console ends by a signal, after everything was taken down.


class _Interrupted(BaseException):
    """SIGTERM or SIGINT: the demo is to be taken down."""


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    def end(number: int, _: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)  # A second signal must not interrupt the clean-up.
        raise _Interrupted(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    for number in before:
        signal.signal(number, end)
    try:
        yield
    except _Interrupted:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _folder(folder: Path | None, *, keep: bool) -> Iterator[Path]:
    was_there = folder is not None and folder.exists()
    place = _made(folder)
    try:
        yield place
    finally:
        if keep:
            _say(_ways_back(place))
        else:
            shutil.rmtree(place, ignore_errors=True)
            if was_there:
                place.mkdir(exist_ok=True)


def _ways_back(place: Path) -> str:
    kept = f"Everything is kept in {place}."
    if not (place / "config.toml").exists():
        return kept
    port = urlsplit(load(place / "config.toml", {}).profile().base_url).port
    folder, config = shlex.quote(str(place / "service")), shlex.quote(str(place / "config.toml"))
    return f"{kept} Its service: runwarden serve --data-dir {folder} --port {port}\nA look: runwarden --config {config}"


def _made(folder: Path | None) -> Path:
    try:
        if folder is None:
            return Path(tempfile.mkdtemp(prefix="runwarden-demo-")).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as error:
        what = "A temporary folder" if folder is None else str(folder)
        raise DemoError(f"{what} cannot be made: {error.strerror}. Name a folder with --folder.") from error
    if not is_empty:
        raise DemoError(f"{folder} is not empty. Name a new folder; the demo builds everything from scratch.")
    return folder.resolve()


@contextmanager
def _world(place: Path) -> Iterator[World]:
    _say("Making three repositories and starting the service…")
    try:
        world = build(place)
    except subprocess.CalledProcessError as error:
        raise DemoError(f"git could not make the demo's repositories: {error.stderr.strip()}") from error
    except FileNotFoundError as error:
        raise DemoError("The demo needs git, and found none on PATH. Install it, then try again.") from error
    except OSError as error:
        raise DemoError(f"The demo cannot be built in {place}: {error.strerror}. Name another --folder.") from error
    try:
        yield world
    finally:
        world.service.stop()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 — progress before there is a console
