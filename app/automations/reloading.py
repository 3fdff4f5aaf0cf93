"""Making a bot read the configuration again, by SIGHUP."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from app.automations.bot import Bot
from app.config import ConfigError, Settings
from app.notify.delivery import Say

_DEMO: Final = b"app.demo.live"
"""The module that the demo's bot runs in."""


def process_of(owner: str | None) -> int | None:
    """The process that holds the automations' lease on this machine; None: there is none."""
    number = (owner or "").partition("-")[0]
    return int(number) if number.isdecimal() else None


def hand_over(process: int) -> bool:
    """Make a bot read the configuration again (SIGHUP); False: the process is not certainly such a bot."""
    try:
        argv = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        is_ours = any(part == b"app" or part.rpartition(b"/")[2].startswith(b"runwarden") for part in argv)
        watches = is_ours and b"watch" in argv and b"--once" not in argv
        if not (watches or _DEMO in argv) or not _survives_hangup(process):
            return False
        os.kill(process, signal.SIGHUP)
    except OSError:
        return False
    return True


def _survives_hangup(process: int) -> bool:
    """Whether SIGHUP is handled or held there: by default it would end the process."""
    status = Path(f"/proc/{process}/status").read_text("ascii", "replace")
    masks = dict(line.split(":\t", 1) for line in status.splitlines() if line.startswith(("SigBlk:", "SigCgt:")))
    return any(int(mask, 16) >> (signal.SIGHUP - 1) & 1 for mask in masks.values())


def reload_on_hangup(read: Callable[[], Settings], bots: Sequence[Bot], say: Say) -> None:
    """Make bots use the current configuration at SIGHUP; one with a mistake is refused, and the old one kept."""

    def reload() -> None:
        try:
            settings = read()
        except ConfigError as error:
            say("reload_refused", message=str(error))
            return
        for bot in bots:
            bot.reload(settings)
        say("reloaded", automations=[rule.name for rule in settings.automations if rule.is_on])

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
