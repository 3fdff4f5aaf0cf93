"""Notification channels: bell, desktop, command, and one message over all channels of its route.

Failures of channels are returned, never raised. Each message uses the markup of its route; foreign text in it cannot
mention anyone or hide a link. Apprise runs in a child process, so that an unresponsive server cannot block the bot.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.util import find_spec
from shutil import which
from tempfile import TemporaryFile
from typing import Final, Self

from msgspec import Struct, field

from app.api.network import Network
from app.engine.processes import end_group, start_program, within
from app.engine.text import SafeText, as_argument, fill, safe_text
from app.profiles import NotifyRoute, NotifySettings
from app.profiles.settings import DEFAULT_ROUTE, Markup
from app.version import how_to_add
from storage import RunwardenError
from storage.records.alert import Alert, Delivery, Level

_END: Final = "\x1b\\"
DEADLINE_S: Final = 15.0
"""A slower program is killed with its process group. Time in which this process was itself stopped does not count."""
_URGENCY: Final = {"information": "low", "warning": "normal", "error": "critical"}
FACTS: Final = ("platform", "run_id", "repository", "branch", "status")
"""Placeholders that are empty if their value is unknown."""
NO_DESKTOP = (
    "Desktop notifications are not available: this terminal has none, and notify-send is not installed."
    " Install it (libnotify), use notify.command, or set notify.desktop = false."
)
OFF: Final = "The channels of [notify] are off: set notify.desktop or notify.command, or add a route."
ROUTE_DEADLINE_S: Final = 30.0
"""The time for all addresses of a route together."""
_TYPES: Final = {"information": "info", "warning": "warning", "error": "failure"}
_MAX_TEXT: Final = 600
NO_APPRISE: Final = f"Apprise is not installed. Install it {how_to_add('notify')}."
_LOOK_ALIKES: Final = str.maketrans(
    {"@": "\N{FULLWIDTH COMMERCIAL AT}", "<": "\N{FULLWIDTH LESS-THAN SIGN}", ">": "\N{FULLWIDTH GREATER-THAN SIGN}"}
)
"""Look-alikes for characters that chats interpret in every format: `@everyone`, `<!channel>`, `<https://…|text>`."""
_LINK: Final = re.compile(r"\](?=\s*[(\[:])")
_MARKS: Final = re.compile(r"([\\`*_{}\[\]()#+.!|~-])")


class Text(Struct, frozen=True):
    """One notification as the channels need it."""

    title: SafeText
    body: SafeText
    level: Level
    values: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, alert: Alert, profile: str) -> Self:
        values = {**alert.about, "kind": alert.kind, "level": alert.level, "profile": profile, "count": "1", "id": ""}
        return cls(safe_text(alert.title), safe_text(alert.body), alert.level, values)


def terminal_sequence(title: SafeText, body: SafeText, env: Mapping[str, str]) -> str | None:
    """The escape sequence to write, or None if the terminal has none or a multiplexer would swallow it."""
    if "TMUX" in env or "STY" in env or env.get("TERM", "").startswith(("tmux", "screen")):
        return None
    term = env.get("TERM", "")
    if term.startswith(("foot", "rxvt-unicode")) or "VTE_VERSION" in env:
        # OSC 777, a title and a text: a semicolon would end the title.
        return f"\x1b]777;notify;{title.replace(';', ',')};{body.replace(';', ',')}{_END}"
    programs = "iTerm.app", "WezTerm", "ghostty"
    if term.startswith(("xterm-kitty", "xterm-ghostty", "wezterm")) or env.get("TERM_PROGRAM") in programs:
        # OSC 9, one text: `9;4;` would draw a progress bar, so the text must not start with a digit.
        return f"\x1b]9;Runwarden: {title} - {body}{_END}"
    return None


async def run_program(
    argv: Sequence[str], deadline_s: float = DEADLINE_S, *, env: Mapping[str, str] | None = None
) -> str | None:
    """Run a program in this environment or our own until it exits. Returns the problem and its fix, or None."""
    name = safe_text(argv[0], limit=80)
    # A file instead of a pipe, because a process left behind by the program may keep its error output open.
    with TemporaryFile() as errors:
        try:
            nothing = asyncio.subprocess.DEVNULL
            process = await start_program(*argv, env=env, stdin=nothing, stdout=nothing, stderr=errors)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "an argument cannot be passed on"
            return f"{name} cannot be run: {reason}. Correct the command in the configuration, or take it out."
        try:
            await within(deadline_s, process.wait())
        except TimeoutError:
            await end_group(process)
            return (
                f"{name} did not finish within {deadline_s:.0f} s and was stopped. Run it by hand to see why it waits."
            )
        except asyncio.CancelledError:
            await end_group(process)
            raise
        if process.returncode == 0:
            return None
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4096))
        last = errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
    message = safe_text(last, limit=120)
    return (
        f"{name} exited with status {process.returncode}{f': {message}' if message else ' without an error message'}."
    )


class Channels(Struct, frozen=True):
    """The channels of this machine that the user chose."""

    desktop: bool
    command: tuple[str, ...]
    env: Mapping[str, str]
    ring_bell: Callable[[], None] = lambda: None
    write: Callable[[str], None] = lambda _: None

    async def deliver(self, news: Sequence[Text]) -> tuple[str, ...]:
        """Deliver notifications and return each distinct failure once."""
        if news:
            self.ring_bell()
        troubles: list[str | None] = []
        for text in news:
            if self.desktop:
                sequence = terminal_sequence(text.title, text.body, self.env)
                if sequence is not None:
                    self.write(sequence)
                elif which("notify-send", path=self.env.get("PATH")) is None:
                    troubles.append(NO_DESKTOP)
                else:
                    # notify-send parses the body as HTML, but not the title.
                    options = ("--app-name=Runwarden", f"--urgency={_URGENCY[text.level]}")
                    argv = ("notify-send", *options, "--", text.title, escape(text.body, quote=False))
                    troubles.append(await run_program(argv))
            if self.command:
                # Foreign text must not be taken for an option or a file name.
                values = {**dict.fromkeys(FACTS, ""), **text.values, "title": text.title, "body": text.body}
                safe = {name: as_argument(safe_text(value, limit=300)) for name, value in values.items()}
                troubles.append(await run_program([fill(argument, safe) for argument in self.command]))
        return tuple(dict.fromkeys(trouble for trouble in troubles if trouble is not None))


class RouteError(RunwardenError):
    """A route cannot be used; the message says how to fix it."""


async def send(
    notify: NotifySettings, delivery: Delivery, profile: str, network: Network, command_line: str = "runwarden"
) -> str | None:
    """Send a message over all channels of its route. Returns the problem and its fix, or None."""
    route = notify.route(delivery.message.route)
    level = delivery.message.level
    if route.is_silent:
        return OFF
    title, body = render(delivery, route, profile, command_line=command_line)
    text = Text(safe_text(title), safe_text(body, limit=_MAX_TEXT), level, values_of(delivery, profile))
    troubles = [*await Channels(route.desktop, route.command, network.env).deliver([text])]
    if route.urls_env or route.urls_file:
        title, body = render(delivery, route, profile, route.markup, command_line)
        troubles += filter(None, [await relay(route, title, body, level, network)])
    return "; ".join(troubles) or None


async def relay(route: NotifyRoute, title: str, body: str, level: str, network: Network) -> str | None:
    """Deliver one text in the route's markup to all of its addresses. Returns the problem, or None."""
    if find_spec("apprise") is None:
        return NO_APPRISE
    try:
        urls = addresses(route, network.env)
        env = await asyncio.to_thread(network.environment)
    except RouteError as error:
        return str(error)
    except ValueError as error:
        return f"Route {route.name}: {error}."
    client_cert = network.client_cert and str(network.client_cert)
    order = {"urls": urls, "title": title, "body": body, "type": _TYPES[level], "markup": route.markup}
    message = json.dumps({**order, "client_cert": client_cert}).encode()
    # -P: ignore a folder called `app` in the current directory.
    argv = (sys.executable, "-P", "-m", "app.notify.relay_child")
    pipe = asyncio.subprocess.PIPE
    try:
        process = await start_program(*argv, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env=env)
    except OSError as error:
        return f"Route {route.name}: no process can be started ({error.strerror})."
    try:
        output, _ = await within(ROUTE_DEADLINE_S, process.communicate(message))
    except TimeoutError:
        return f"Route {route.name}: no answer within {ROUTE_DEADLINE_S:.0f} s; it may have been delivered."
    finally:
        if process.returncode is None:
            await end_group(process)
    if process.returncode == 0:
        return None
    # Killed, perhaps for want of memory, or Apprise cannot be loaded.
    silent = f"the program that sends it ended (status {process.returncode}): is there memory, and does Apprise start?"
    return f"Route {route.name}: {output.decode('utf-8', 'replace').strip() or silent}"


def addresses(route: NotifyRoute, env: Mapping[str, str]) -> list[str]:
    """The addresses of a route, which contain secrets; without any, or if others can read them, raise `RouteError`."""
    urls = env.get(route.urls_env or "", "").split()
    if route.urls_file is not None:
        file = route.urls_file
        try:
            if file.stat().st_mode & 0o077:
                raise RouteError(f"Others may read {file}, which holds secrets: chmod 600 {file}")
            lines = map(str.strip, file.read_text(encoding="utf-8").splitlines())
        except (OSError, UnicodeDecodeError) as error:
            raise RouteError(f"{file} cannot be read ({error}).") from error
        urls += [line for line in lines if line and not line.startswith("#")]
    if not urls:
        source = route.urls_env or route.urls_file
        raise RouteError(f"Route {route.name} has no address: put one into {source}, such as ntfys://ntfy.sh/topic.")
    return urls


def faults(notify: NotifySettings, env: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with routes, as far as is known without sending, by route."""
    problems = dict[str, str]()
    for route in (notify.route(DEFAULT_ROUTE), *notify.routes):
        if route.command and which(route.command[0], path=env.get("PATH")) is None:
            program = safe_text(route.command[0], limit=80)
            problems[route.name] = f"there is no program {program}: install it, or correct the command"
        elif route.urls_env or route.urls_file:
            try:
                addresses(route, env)
            except RouteError as error:
                problems[route.name] = str(error)
            if find_spec("apprise") is None:
                problems[route.name] = NO_APPRISE
    return problems


def disarm(text: str) -> str:
    """Foreign text without control characters, mentions and links that hide their address."""
    return _LINK.sub("\N{FULLWIDTH RIGHT SQUARE BRACKET}", safe_text(text, limit=_MAX_TEXT).translate(_LOOK_ALIKES))


ESCAPES: Final[Mapping[Markup, Callable[[str], str]]] = {
    "text": disarm,
    "markdown": lambda text: _MARKS.sub(r"\\\1", disarm(text)),
    "html": lambda text: escape(disarm(text)),
}
"""The function that escapes text for each markup, which Apprise converts for each backend."""


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


def render(
    delivery: Delivery, route: NotifyRoute, profile: str, markup: Markup | None = None, command_line: str = "runwarden"
) -> tuple[str, str]:
    """Title and text of a delivery, in plain text if no markup is given."""
    escaped = (lambda text: safe_text(text, limit=_MAX_TEXT)) if markup is None else ESCAPES[markup]
    values = {name: escaped(value) for name, value in values_of(delivery, profile).items()}
    values["command_line"] = escaped(command_line)
    # After a time-out the message may arrive twice; the number shows that it is the same one.
    number = "" if "{id}" in f"{route.title}{route.text}" else " [{id}]"
    is_repeated = delivery.delivery_id and delivery.message.phase != "over" and route.repeat
    command = " · {command_line} notify ack {id}" if is_repeated and not route.text else ""
    title = route.title or "{title}"
    text = f"{route.text or '{body}'}{command}{number}"
    return fill(title, values), fill(text, values)
