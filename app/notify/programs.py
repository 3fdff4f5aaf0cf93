"""Notifications by a program: an argument list, no shell, a deadline, and a word on what went wrong."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from html import escape
from typing import Final

from app.notify.news import News
from app.text import safe_text

DEADLINE_S: Final = 15.0
"""A program that takes longer is ended."""
_URGENCY: Final = {"information": "low", "warning": "normal", "error": "critical"}
_VALUE_LIMIT: Final = 300
_DISARMED: Final = {"-": "\N{HYPHEN}", "@": "\N{FULLWIDTH COMMERCIAL AT}", "<": "\N{FULLWIDTH LESS-THAN SIGN}"}
"""First characters that programs obey (`--option`, and curl's `@file` and `<file`), by what looks like them."""


def notify_send(news: News) -> tuple[str, ...]:
    """The arguments for the desktop's own program."""
    # Its text is a kind of HTML, its title is not.
    body = escape(news.body, quote=False)
    return "notify-send", "--app-name=Runwarden", f"--urgency={_URGENCY[news.level]}", "--", news.title, body


def filled(template: Sequence[str], news: News, profile: str) -> tuple[str, ...]:
    """The user's own command for one piece of news; what is not known of it is empty."""
    values = {
        "title": _argument(news.title),
        "body": _argument(news.body),
        "kind": news.kind,
        "level": news.level,
        "profile": _argument(profile),
        **dict.fromkeys(("platform", "run_id", "repository", "branch", "status"), ""),
        **{name: _argument(value) for name, value in news.about},
    }
    return tuple(_fill(argument, values) for argument in template)


async def run(argv: Sequence[str], deadline_s: float = DEADLINE_S) -> str | None:
    """Runs a program to its end; what went wrong, with the cure. None: nothing."""
    name = safe_text(argv[0], limit=80)
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
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


def _fill(argument: str, values: Mapping[str, str]) -> str:
    # One pass from left to right: a value with braces in it is never filled in again.
    parts: list[str] = []
    rest = argument
    while rest:
        before, brace, rest = rest.partition("{")
        parts.append(before)
        name, closing, after = rest.partition("}")
        if brace and closing and name in values:
            parts.append(values[name])
            rest = after
        else:
            parts.append(brace)
    return "".join(parts)


def _argument(value: str) -> str:
    """Foreign text as an argument: printable, and no program takes it for an option or for a file's name."""
    text = safe_text(value, limit=_VALUE_LIMIT)
    return f"{_DISARMED.get(text[:1], text[:1])}{text[1:]}"
