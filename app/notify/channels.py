"""Notification channels: bell, desktop, command. A failure is reported, and nothing waits for it."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from html import escape
from shutil import which
from typing import Final

from msgspec import Struct

from app.config import NotifySettings
from app.notify.notifications import Notification
from app.text import SafeText, as_argument, safe_text

_END: Final = "\x1b\\"
_TITLED: Final = ("foot", "rxvt-unicode")
"""Beginnings of TERM of terminals that take a title and a text (OSC 777)."""
_PLAIN: Final = ("xterm-kitty", "xterm-ghostty", "wezterm")
"""Beginnings of TERM of terminals that take one text (OSC 9)."""
_PLAIN_PROGRAMS: Final = frozenset({"iTerm.app", "WezTerm", "ghostty"})
"""As TERM_PROGRAM names them."""
DEADLINE_S: Final = 15.0
"""A slower program is killed."""
_URGENCY: Final = {"information": "low", "warning": "normal", "error": "critical"}
_VALUE_LIMIT: Final = 300
NO_DESKTOP = (
    "Desktop notifications are not available: this terminal has none, and notify-send is not installed."
    " Install it (libnotify), use notify.command, or set notify.desktop = false."
)


def terminal_sequence(title: SafeText, body: SafeText, env: Mapping[str, str]) -> str | None:
    """The escape sequence to write; None: the terminal has none, or a multiplexer would swallow it."""
    if "TMUX" in env or "STY" in env or env.get("TERM", "").startswith(("tmux", "screen")):
        return None
    term = env.get("TERM", "")
    if term.startswith(_TITLED) or "VTE_VERSION" in env:
        # A semicolon would end the title.
        return f"\x1b]777;notify;{title.replace(';', ',')};{body.replace(';', ',')}{_END}"
    if term.startswith(_PLAIN) or env.get("TERM_PROGRAM") in _PLAIN_PROGRAMS:
        # `9;4;` would be a progress bar: the text begins with a word of ours, never with a digit.
        return f"\x1b]9;Runwarden: {title} - {body}{_END}"
    return None


def notify_send(news: Notification) -> tuple[str, ...]:
    """The arguments for the desktop's own program."""
    # Its body is a kind of HTML, its title is not.
    body = escape(news.body, quote=False)
    return "notify-send", "--app-name=Runwarden", f"--urgency={_URGENCY[news.level]}", "--", news.title, body


def filled(template: Sequence[str], news: Notification, profile: str) -> tuple[str, ...]:
    """Fill the user's command for one notification; unknown facts are empty."""
    values = {
        "title": _argument(news.title),
        "body": _argument(news.body),
        "kind": news.kind,
        "level": news.level,
        "profile": _argument(profile),
        **dict.fromkeys(("platform", "run_id", "repository", "branch", "status", "id"), ""),
        "count": "1",
        **{name: _argument(value) for name, value in news.about.items()},
    }
    return tuple(fill(argument, values) for argument in template)


async def run_program(
    argv: Sequence[str], deadline_s: float = DEADLINE_S, *, env: Mapping[str, str] | None = None
) -> str | None:
    """Run a program to its end, with this environment or our own. Returns what went wrong, with the cure, or None."""
    name = safe_text(argv[0], limit=80)
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "an argument cannot be passed on"
        return f"{name} cannot be run: {why}. Correct notify.command, or take it out of the configuration."
    try:
        async with asyncio.timeout(deadline_s):
            _, said = await process.communicate()
    except TimeoutError:
        await _end(process)
        return f"{name} did not end within {deadline_s:.0f} s and was stopped. Run it by hand to see what it waits for."
    except asyncio.CancelledError:
        await _end(process)
        raise
    if process.returncode == 0:
        return None
    last = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return f"{name} ended with {process.returncode}: {safe_text(last, limit=120) or 'it said nothing'}."


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()


def fill(text: str, values: Mapping[str, str]) -> str:
    """Fill in a text's placeholders, in one pass: braces in a value stay as they are, as do unknown placeholders."""
    return re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), text)


def _argument(value: str) -> str:
    """Foreign text as an argument: printable, and never mistaken for an option or a file name."""
    return as_argument(safe_text(value, limit=_VALUE_LIMIT))


class Channels(Struct, frozen=True):
    """The channels that the user chose."""

    settings: NotifySettings
    profile: str
    env: Mapping[str, str]
    ring_bell: Callable[[], None]
    write: Callable[[str], None]
    """Writes to the terminal without change."""

    async def deliver(self, news: Sequence[Notification]) -> tuple[str, ...]:
        """Deliver notifications. Returns each failure once."""
        if news and self.settings.bell:
            self.ring_bell()
        troubles: list[str | None] = []
        for one in news:
            if self.settings.desktop:
                sequence = terminal_sequence(one.title, one.body, self.env)
                if sequence is not None:
                    self.write(sequence)
                elif which("notify-send", path=self.env.get("PATH")) is None:
                    troubles.append(NO_DESKTOP)
                else:
                    troubles.append(await run_program(notify_send(one)))
            if self.settings.command:
                troubles.append(await run_program(filled(self.settings.command, one, self.profile)))
        return tuple(dict.fromkeys(trouble for trouble in troubles if trouble is not None))
