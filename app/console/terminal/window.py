"""The terminal around the console: its title, and whose the mouse is."""

from typing import TYPE_CHECKING, Final

from app.text import safe_text

if TYPE_CHECKING:
    from textual.driver import Driver

    from widgets.frame.header_bar import Vitals

KEEP_TITLE: Final = "\x1b[22;2t"
"""Has the terminal remember the title that it had; those that cannot ignore it."""
GIVE_TITLE_BACK: Final = "\x1b[23;2t"
LONGEST: Final = 120


def title_of(vitals: "Vitals") -> str:
    """The window's title: what has to be seen while another window is in front."""
    profile = safe_text(vitals.profile, limit=40)
    counts = ((vitals.working, "working"), (vitals.queued, "queued"), (vitals.failed_today, "failed"))
    said = ", ".join(f"{number:,} {word}" for number, word in counts if number)
    link = vitals.runs_link
    lost = "not live · " if link is not None and link.is_failing else ""
    return safe_text(f"{lost}{said or 'runwarden'} · {profile}", limit=LONGEST)


class WindowTitle:
    """Says in the window's title how things are; gives the old one back at the end."""

    def __init__(self, driver: "Driver | None") -> None:
        """Says nothing yet.

        Args:
            driver: Where to write. None: there is no terminal, as in a browser or a test.
        """
        self._driver = driver
        self._said: str | None = None

    def say(self, title: str) -> None:
        """Sets the title, where it differs from what was said last."""
        if self._driver is None or title == self._said:
            return
        keep = KEEP_TITLE if self._said is None else ""
        self._said = title
        self._driver.write(f"{keep}\x1b]2;{title}\x07")

    @property
    def farewell(self) -> str:
        """What gives the old title back once the terminal is no longer ours."""
        return GIVE_TITLE_BACK if self._said is not None else ""

    def give_back(self) -> None:
        """The title is as it was before; the next `say` begins anew."""
        if self._driver is not None and self._said is not None:
            self._said = None
            self._driver.write(GIVE_TITLE_BACK)


def lend_mouse(driver: "Driver", *, to_console: bool) -> None:
    """Has the terminal report the mouse to the console, or keep it to select text with."""
    write = driver.write
    if to_console:
        write("\x1b[?1000h\x1b[?1003h\x1b[?1006h")
        if getattr(driver, "_mouse_pixels", False):
            # Cells and pixels exclude each other: the last one asked for counts, and Textual goes on reading pixels.
            write("\x1b[?1016h")
    else:
        write("\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?1016l")
    driver.flush()
    # After a suspension the driver switches on again what it believes to be on.
    driver._mouse = to_console  # noqa: SLF001 — it has no other way to be told
