"""Sending: one message over all channels of its route.

Each message uses the markup of its route; foreign text in it cannot mention anyone or hide a link. Apprise runs in a
child process, so that an unresponsive server cannot block the bot.
"""

import asyncio
import json
import re
import stat
import sys
from collections.abc import Callable, Mapping
from html import escape
from importlib.util import find_spec
from typing import Final

from app.api.network import Network
from app.engine.processes import end_group, within
from app.engine.text import safe_text
from app.notify.channels import FACTS, Channels, Text, fill
from app.profiles import NotifyRoute, NotifySettings
from app.profiles.settings import Markup
from app.version import how_to_add
from storage import RunwardenError
from storage.records.alert import Delivery

OFF: Final = "The channels of [notify] are off: set notify.desktop or notify.command, or add a route."
DEADLINE_S: Final = 30.0
"""The time for all addresses of a route together."""
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_TYPES: Final = {"information": "info", "warning": "warning", "error": "failure"}
_LONGEST: Final = 600
_LOOK_ALIKES: Final = str.maketrans(
    {"@": "\N{FULLWIDTH COMMERCIAL AT}", "<": "\N{FULLWIDTH LESS-THAN SIGN}", ">": "\N{FULLWIDTH GREATER-THAN SIGN}"}
)
"""Look-alikes for characters that chats interpret in every format: `@everyone`, `<!channel>`, `<https://…|text>`."""
_LINK: Final = re.compile(r"\](?=\s*[(\[:])")
_MARKS: Final = re.compile(r"([\\`*_{}\[\]()#+.!|~-])")


class RouteError(RunwardenError):
    """A route cannot be used; the message says how to fix it."""


async def send(
    notify: NotifySettings, delivery: Delivery, profile: str, network: Network, command_line: str = "runwarden"
) -> str | None:
    """Send a message over all channels of its route. Returns the problem and its fix, or None."""
    route = notify.route(delivery.message.route)
    if route.is_silent:
        return OFF
    title, body = rendered(delivery, route, profile, command_line=command_line)
    text = Text(safe_text(title), safe_text(body, limit=_LONGEST), delivery.message.level, values_of(delivery, profile))
    troubles = [*await Channels(route.desktop, route.command, network.env).deliver([text])]
    if route.urls_env or route.urls_file:
        title, body = rendered(delivery, route, profile, route.markup, command_line)
        trouble = await relayed(route, title, body, delivery.message.level, network)
        troubles += [trouble] if trouble is not None else []
    return "; ".join(troubles) or None


async def relayed(route: NotifyRoute, title: str, body: str, level: str, network: Network) -> str | None:
    """Deliver one text in the route's markup to all of its addresses. Returns the problem, or None."""
    if find_spec("apprise") is None:
        return f"Apprise is not installed. Install it {how_to_add('notify')}."
    try:
        urls = addresses(route, network.env)
        env = await asyncio.to_thread(network.environment)
    except RouteError as error:
        return str(error)
    except ValueError as error:
        return f"Route {route.name}: {error}."
    order: dict[str, object] = {
        "urls": urls,
        "title": title,
        "body": body,
        "type": _TYPES[level],
        "markup": route.markup,
    }
    order["client_cert"] = network.client_cert and str(network.client_cert)
    # -P: ignore a folder called `app` in the current directory.
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "app.notify.relay_child"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            env=env,
        )
    except OSError as error:
        return f"Route {route.name}: no process can be started ({error.strerror})."
    try:
        output, _ = await within(DEADLINE_S, process.communicate(json.dumps(order).encode()))
    except TimeoutError:
        return f"Route {route.name}: no answer within {DEADLINE_S:.0f} s; it may have been delivered."
    finally:
        if process.returncode is None:
            await end_group(process)
    return None if process.returncode == 0 else f"Route {route.name}: {output.decode('utf-8', 'replace').strip()}"


def addresses(route: NotifyRoute, env: Mapping[str, str]) -> list[str]:
    """The addresses of a route, which contain secrets.

    Raises:
        RouteError: There are none, or other users can read their file.
    """
    urls = env.get(route.urls_env or "", "").split()
    if route.urls_file is not None:
        file = route.urls_file
        try:
            if file.stat().st_mode & _OTHERS:
                raise RouteError(f"Others may read {file}, which holds secrets: chmod 600 {file}")
            lines = map(str.strip, file.read_text(encoding="utf-8").splitlines())
        except (OSError, UnicodeDecodeError) as error:
            raise RouteError(f"{file} cannot be read ({error}).") from error
        urls += [line for line in lines if line and not line.startswith("#")]
    if not urls:
        source = route.urls_env or route.urls_file
        raise RouteError(f"Route {route.name} has no address: put one into {source}, such as ntfys://ntfy.sh/topic.")
    return urls


def disarmed(text: str) -> str:
    """Foreign text without control characters, mentions and links that hide their address."""
    return _LINK.sub("\N{FULLWIDTH RIGHT SQUARE BRACKET}", safe_text(text, limit=_LONGEST).translate(_LOOK_ALIKES))


ESCAPES: Final[Mapping[Markup, Callable[[str], str]]] = {
    "text": disarmed,
    "markdown": lambda text: _MARKS.sub(r"\\\1", disarmed(text)),
    "html": lambda text: escape(disarmed(text)),
}
"""The function that escapes a text for a route's markup; Apprise converts it for each backend."""


def values_of(delivery: Delivery, profile: str) -> dict[str, str]:
    """The placeholders' values, as received."""
    message = delivery.message
    return {
        **dict.fromkeys(FACTS, ""),
        **message.about,
        "title": message.title,
        "body": message.body,
        "kind": message.batch.rpartition(":")[2],
        "level": message.level,
        "profile": profile,
        "count": str(message.count),
        "id": str(delivery.number),
    }


def rendered(
    delivery: Delivery, route: NotifyRoute, profile: str, markup: Markup | None = None, command_line: str = "runwarden"
) -> tuple[str, str]:
    """Title and text of a delivery, in plain text if no markup is given."""
    escaped = (lambda text: safe_text(text, limit=_LONGEST)) if markup is None else ESCAPES[markup]
    values = {name: escaped(value) for name, value in values_of(delivery, profile).items()}
    values["command_line"] = escaped(command_line)
    # After a time-out the message may arrive twice; the number shows that it is the same one.
    number = "" if "{id}" in f"{route.title}{route.text}" else " [{id}]"
    is_repeated = delivery.delivery_id and delivery.message.phase != "over" and route.repeat
    command = " · {command_line} notify ack {id}" if is_repeated and not route.text else ""
    title = route.title or "{title}"
    text = f"{route.text or '{body}'}{command}{number}"
    return fill(title, values), fill(text, values)
