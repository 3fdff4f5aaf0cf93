"""The relay: a text to all addresses of a route, sent by Apprise in a child process."""

import asyncio
import json
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from app.config import NotifyRoute
from app.version import DISTRIBUTION
from storage.base_error import RunwardenError

DEADLINE_S: Final = 30.0
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_TYPES: Final = {"information": "info", "warning": "warning", "error": "failure"}


class RouteError(RunwardenError):
    """A route cannot be used; the message names the cure."""


async def relayed(route: NotifyRoute, title: str, body: str, level: str, env: Mapping[str, str]) -> str | None:
    """Deliver one text, written in the route's markup, to all of its addresses. Returns what went wrong, or None."""
    if find_spec("apprise") is None:
        return f"Apprise is not installed. Install it with: pip install '{DISTRIBUTION}[notify]'."
    try:
        urls = addresses(route, env)
    except RouteError as error:
        return str(error)
    order = {"urls": urls, "title": title, "body": body, "type": _TYPES[level], "markup": route.markup}
    # -P: a folder called `app` in the current directory is not ours.
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "app.notify.relay_child"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as error:
        return f"Route {route.name}: no process can be started ({error.strerror})."
    try:
        async with asyncio.timeout(DEADLINE_S):
            said, _ = await process.communicate(json.dumps(order).encode())
    except TimeoutError:
        return f"Route {route.name}: no answer within {DEADLINE_S:.0f} s; it may have been delivered."
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return None if process.returncode == 0 else f"Route {route.name}: {said.decode('utf-8', 'replace').strip()}"


def addresses(route: NotifyRoute, env: Mapping[str, str]) -> list[str]:
    """The addresses of a route, which hold secrets.

    Raises:
        RouteError: There are none, or others may read their file.
    """
    found = env.get(route.urls_env or "", "").split()
    if route.urls_file is not None:
        found += _lines(route.urls_file)
    if not found:
        source = route.urls_env or route.urls_file
        raise RouteError(f"Route {route.name} has no address: put one into {source}, such as ntfys://ntfy.sh/topic.")
    return found


def _lines(file: Path) -> list[str]:
    try:
        if file.stat().st_mode & _OTHERS:
            raise RouteError(f"Others may read {file}, which holds secrets: chmod 600 {file}")
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RouteError(f"{file} cannot be read ({error}).") from error
    return [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
