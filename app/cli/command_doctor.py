"""`runwarden doctor`: facts about this machine for an issue, without addresses, names or secrets."""

import os
import platform
import shutil
import subprocess
import sys
import time
from importlib.metadata import version
from importlib.util import find_spec
from typing import Final
from urllib.parse import urlsplit

import click
from msgspec import Struct

from app.api.errors import ApiError
from app.cli.context import Invocation
from app.cli.exits import Exit, installed_extras
from app.cli.options import FactCommand, async_command
from app.demo.service_process import bubblewrap_works
from app.engine.text import plural
from app.profiles import CACHE_FILE, LEDGER_FILE, STATE_FILE, ConfigError, Profile, Settings, data_folder
from app.profiles.token import TokenError
from app.version import DISTRIBUTION, __version__
from storage.errors import StorageError
from storage.private_file import NETWORK, file_system

_LIBRARIES: Final = ("textual", "httpx", "click", "msgspec", "pydantic", "dbos", "fastapi", "sqlalchemy")
_PROGRAMS: Final = ("git", "bwrap", "slirp4netns")
_VARIABLES: Final = ("TERM", "COLORTERM", "NO_COLOR", "LANG", "LC_ALL", "TERM_PROGRAM")
_PROGRAM_S: Final = 5.0


class Check(Struct, frozen=True):
    """One line of the report."""

    name: str
    found: str
    fix: str = ""


@click.command(cls=FactCommand)
@async_command
async def doctor(invocation: Invocation, /) -> int:
    """Check versions, terminal, data folder, service and sandbox, for an issue; exit code 1 if something is wrong.

    The report has no token, address, name of a profile or home folder in it.
    """
    checks = [*_machine(), *await _profile(invocation), _sandbox()]
    document = {
        "ok": not any(check.fix for check in checks),
        "checks": [{"name": row.name, "ok": not row.fix, "found": row.found, "fix": row.fix} for row in checks],
    }
    invocation.output.record(
        document, [(check.name, f"{check.found}. {check.fix}".removesuffix(". ")) for check in checks]
    )
    return Exit.DONE if document["ok"] else Exit.FAILED


def _machine() -> list[Check]:
    """Versions, programs and the terminal."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    libraries = [f"{name} {version(name)}" for name in _LIBRARIES if find_spec(name) is not None]
    columns, lines = shutil.get_terminal_size()
    screen = f"{columns}x{lines}" if sys.stdout.isatty() else "none"
    variables = [f"{name}={os.environ[name]}" for name in _VARIABLES if name in os.environ]
    inside = [word for word, name in (("tmux", "TMUX"), ("ssh", "SSH_CONNECTION")) if name in os.environ]
    fix = "Use a UTF-8 locale, such as LANG=C.UTF-8."
    if sys.stdout.encoding.lower() == "utf-8":
        fix = ""
    return [
        Check("runwarden", f"{__version__} ({DISTRIBUTION}), extras: {', '.join(installed_extras()) or 'none'}"),
        Check("python", f"{platform.python_version()} ({platform.python_implementation()}) on {system}"),
        Check("libraries", ", ".join(libraries)),
        Check("programs", ", ".join(map(_program, _PROGRAMS)), "" if shutil.which("git") else "Install git."),
        Check("terminal", ", ".join([screen, sys.stdout.encoding, *variables, *inside]), fix),
    ]


async def _profile(invocation: Invocation) -> list[Check]:
    """The configuration, and the data folder and the service of the profile that it has."""
    try:
        settings = invocation.settings(quietly=True)
        profile = invocation.profile(settings) if settings.profiles else None
    except ConfigError as error:
        line = "" if error.line is None else f", line {error.line}"
        return [Check("configuration", f"it cannot be used{line}", "Run: runwarden config check")]
    source = "environment only" if settings.file is None else "file"
    configuration = Check("configuration", f"{source}, {plural(len(settings.profiles), 'profile')}")
    if profile is None:
        return [configuration]
    return [configuration, _data(settings, profile), await _service(invocation, profile)]


def _sandbox() -> Check:
    if bubblewrap_works():
        return Check("sandbox", "bubblewrap works")
    problem = "bubblewrap is not installed or does not work"
    if find_spec("dbos") is None:
        return Check("sandbox", f"{problem}; only a service needs it")
    return Check("sandbox", problem, "No agent can run here: apt install bubblewrap; see docs/run/troubleshooting.md.")


def _program(name: str) -> str:
    try:
        done = subprocess.run(
            [name, "--version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROGRAM_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"no {name}"
    return f"{name} {next((word for word in done.stdout.split() if word[:1].isdigit()), 'of unknown version')}"


def _data(settings: Settings, profile: Profile) -> Check:
    folder = data_folder(settings, profile)
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free >> 20
    files = (folder / name for name in (CACHE_FILE, LEDGER_FILE, STATE_FILE))
    sizes = [f"{file.name} {file.stat().st_size >> 10} KiB" for file in files if file.exists()]
    text = f"{', '.join(sizes) or 'empty'}, {free:,} MiB free"
    if not os.access(existing, os.W_OK):
        return Check("data folder", text, "It cannot be written: change its owner, or use --data-dir.")
    system = file_system(existing)
    fix = "Move it to a local disk: SQLite's locks may fail there." if system in NETWORK else ""
    return Check("data folder", f"{text}, on {system or 'an unknown file system'}", fix)


async def _service(invocation: Invocation, profile: Profile) -> Check:
    address = urlsplit(profile.base_url)
    place = "remote"
    if address.hostname in {"127.0.0.1", "localhost", "::1"}:
        place = "on this machine"
    text = f"{place}, {address.scheme}"
    begun = time.monotonic()
    try:
        async with invocation.engine(needs_token=True) as engine:
            await engine.client.list_runs(page_size=1)
    except TokenError:
        return Check("service", f"{text}, no usable token", "Run: runwarden token check")
    except ApiError as error:
        return Check("service", f"{text}, {error.kind}", "Run: runwarden token check")
    except StorageError as error:
        return Check("service", f"not asked: {type(error).__name__}", "Run: runwarden runs list --cached")
    return Check("service", f"{text}, answered in {time.monotonic() - begun:.1f} s")
