"""Reading `[notify]`: of what the console tells, and how."""

import re
from typing import Final

from app.config.quiet import QuietHours
from app.config.settings import NotifySettings
from app.config.table import Table

PLACEHOLDERS: Final = frozenset(
    {"title", "body", "kind", "level", "profile", "platform", "run_id", "repository", "branch", "status"}
)
"""What the arguments of `command` may hold."""

_LONGEST_HOLD_S: Final = 3_600.0


def read_notify(table: Table) -> NotifySettings:
    """The settings.

    Raises:
        ConfigError: Something in the table is wrong.
    """
    base = NotifySettings()
    notify = NotifySettings(
        on=table.texts("on", base.on, may_be_empty=True),
        bell=table.flag("bell", default=base.bell),
        desktop=table.flag("desktop", default=base.desktop),
        command=table.texts("command", base.command, may_be_empty=True),
        quiet=_quiet(table),
        hold_s=table.number("hold_s", base.hold_s, least=0, most=_LONGEST_HOLD_S),
    )
    table.finish()
    for name in (name for argument in notify.command for name in re.findall(r"\{([^{}]*)\}", argument)):
        if name not in PLACEHOLDERS:
            table.fail("command", f"nothing is called {{{name}}}.", f"There are: {', '.join(sorted(PLACEHOLDERS))}.")
    return notify


def _quiet(table: Table) -> QuietHours | None:
    text = table.text("quiet", "")
    if not text.strip():
        return None
    try:
        return QuietHours.parse(text)
    except ValueError as error:
        table.fail("quiet", f"{error}.", "Correct the hours, or remove the key.")
