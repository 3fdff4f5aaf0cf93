"""Notification channels: bell, desktop, command. Failures are returned, never raised."""

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from shutil import which
from tempfile import TemporaryFile
from typing import Final, Self

from msgspec import Struct, field

from app.engine.processes import end_group, within
from app.engine.text import SafeText, as_argument, safe_text
from storage.records.alert import Alert, Level

_END: Final = "\x1b\\"
_TITLED: Final = ("foot", "rxvt-unicode")
"""Prefixes of TERM for terminals that accept a title and a text (OSC 777)."""
_PLAIN: Final = ("xterm-kitty", "xterm-ghostty", "wezterm")
"""Prefixes of TERM for terminals that accept one text (OSC 9)."""
_PLAIN_PROGRAMS: Final = frozenset({"iTerm.app", "WezTerm", "ghostty"})
"""Such terminals by TERM_PROGRAM."""
DEADLINE_S: Final = 15.0
"""A slower program is killed with its process group. Time in which this process was itself stopped does not count."""
_LAST_WORDS: Final = 4096
"""Bytes at the end of a program's error output in which to find its last line."""
_URGENCY: Final = {"information": "low", "warning": "normal", "error": "critical"}
_VALUE_LIMIT: Final = 300
FACTS: Final = ("platform", "run_id", "repository", "branch", "status")
"""Placeholders that are empty if their value is unknown."""
NO_DESKTOP = (
    "Desktop notifications are not available: this terminal has none, and notify-send is not installed."
    " Install it (libnotify), use notify.command, or set notify.desktop = false."
)


class Text(Struct, frozen=True):
    """One notification as the channels need it."""

    title: SafeText
    body: SafeText
    level: Level
    values: Mapping[str, str] = field(default_factory=dict)
    """The placeholders' values, as received."""

    @classmethod
    def of(cls, alert: Alert, profile: str) -> Self:
        """Return the notification for an alert of a console."""
        values = {**alert.about, "kind": alert.kind, "level": alert.level, "profile": profile, "count": "1", "id": ""}
        return cls(safe_text(alert.title), safe_text(alert.body), alert.level, values)


def terminal_sequence(title: SafeText, body: SafeText, env: Mapping[str, str]) -> str | None:
    """The escape sequence to write; None: the terminal has none, or a multiplexer would swallow it."""
    if "TMUX" in env or "STY" in env or env.get("TERM", "").startswith(("tmux", "screen")):
        return None
    term = env.get("TERM", "")
    if term.startswith(_TITLED) or "VTE_VERSION" in env:
        # A semicolon would end the title.
        return f"\x1b]777;notify;{title.replace(';', ',')};{body.replace(';', ',')}{_END}"
    if term.startswith(_PLAIN) or env.get("TERM_PROGRAM") in _PLAIN_PROGRAMS:
        # `9;4;` would draw a progress bar, so the text must not start with a digit.
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
            process = await asyncio.create_subprocess_exec(
                *argv,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "an argument cannot be passed on"
            return f"{name} cannot be run: {why}. Correct the command in the configuration, or take it out."
        try:
            await within(deadline_s, process.wait())
        except TimeoutError:
            await end_group(process)
            cure = "Run it by hand to see why it waits."
            return f"{name} did not end within {deadline_s:.0f} s and was stopped. {cure}"
        except asyncio.CancelledError:
            await end_group(process)
            raise
        if process.returncode == 0:
            return None
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - _LAST_WORDS))
        last = errors.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
    return f"{name} ended with {process.returncode}: {safe_text(last, limit=120) or 'it said nothing'}."


def fill(text: str, values: Mapping[str, str]) -> str:
    """Fill in the placeholders in one pass. Unknown placeholders and braces inside values stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), text)


class Channels(Struct, frozen=True):
    """The channels of this machine that the user chose."""

    desktop: bool
    command: tuple[str, ...]
    env: Mapping[str, str]
    ring_bell: Callable[[], None] = lambda: None
    write: Callable[[str], None] = lambda _: None
    """Writes raw text to the terminal."""

    async def deliver(self, news: Sequence[Text]) -> tuple[str, ...]:
        """Deliver notifications and return each distinct failure once."""
        if news:
            self.ring_bell()
        troubles: list[str | None] = []
        for one in news:
            if self.desktop:
                sequence = terminal_sequence(one.title, one.body, self.env)
                if sequence is not None:
                    self.write(sequence)
                elif which("notify-send", path=self.env.get("PATH")) is None:
                    troubles.append(NO_DESKTOP)
                else:
                    # notify-send parses the body as HTML, but not the title.
                    options = ("--app-name=Runwarden", f"--urgency={_URGENCY[one.level]}")
                    argv = ("notify-send", *options, "--", one.title, escape(one.body, quote=False))
                    troubles.append(await run_program(argv))
            if self.command:
                # Foreign text must not be taken for an option or a file name.
                values = {**dict.fromkeys(FACTS, ""), **one.values, "title": one.title, "body": one.body}
                safe = {name: as_argument(safe_text(value, limit=_VALUE_LIMIT)) for name, value in values.items()}
                troubles.append(await run_program([fill(argument, safe) for argument in self.command]))
        return tuple(dict.fromkeys(trouble for trouble in troubles if trouble is not None))
