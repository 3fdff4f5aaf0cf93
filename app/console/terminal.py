"""The terminal: its title, its mouse, its state before the console, the console's output, and the last frame.

`TerminalDriver` makes up for two faults of Textual's own driver:

- It writes a line whole even if only an age in it changed. On a screen full of ages that is a kilobyte a second, which
  is slow over ssh. `written_at_rest` in `bench/busy.py` counts the bytes: at most 300 a second.
- It does not notice that the process was stopped by another one, and begins a second time when it continues
  (`tests/pty/test_endings.py`).
"""

import os
import re
import subprocess
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from contextlib import suppress
from selectors import EVENT_READ, SelectSelector
from threading import Event
from typing import Any, Final

from msgspec import Struct
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import constants
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.strip import Strip

from app.engine.text import safe_text
from widgets.frame import Vitals
from widgets.runs.table import RunTable

KEEP_TITLE: Final = "\x1b[22;2t"
"""Asks the terminal to store its title; a terminal without this feature ignores it."""
GIVE_TITLE_BACK: Final = "\x1b[23;2t"
MAX_TITLE: Final = 120
TMUX_S: Final = 2.0
"""How long tmux may take to store a text."""
SENT: Final = "sent to the terminal's clipboard"
"""A terminal does not report whether the text arrived."""
KeepFrame = Callable[[Sequence[int], str, Sequence[str]], None]
"""Keeps a frame for a window size: a title that the time is appended to, and the rows below it."""
ESCAPE_S: Final = constants.ESCAPE_DELAY + 0.01
"""After this long without input, the parser stops waiting for the rest of a sequence."""
_DIM: Final = Style(dim=True)


def copy_out(app: App[Any], text: str) -> str:
    """Send text to the clipboard; return how far it certainly got, as the end of a sentence."""
    if os.environ.get("TMUX"):
        # By default tmux ignores a program's clipboard sequence, and before version 3.2 it has no -w.
        for arguments, how in ((["-w"], f"copied to tmux and {SENT}"), ([], "copied to tmux")):
            with suppress(OSError, subprocess.SubprocessError):
                argv = ["tmux", "load-buffer", *arguments, "-"]
                octets = text.encode("utf-8", "replace")
                subprocess.run(argv, input=octets, capture_output=True, check=True, timeout=TMUX_S)
                return how
        return "not copied: tmux did not accept it"
    if os.environ.get("STY"):
        return "not copied: GNU screen does not pass it on"
    app.copy_to_clipboard(text)
    return SENT


def window_title(vitals: Vitals) -> str:
    """The urgent facts for the window's title, which is visible behind other windows."""
    profile = safe_text(vitals.profile, limit=40)
    link = vitals.runs_link
    counts = ((vitals.working, "working"), (vitals.queued, "queued"), (vitals.failed_today, "failed"))
    words = ", ".join(f"{number:,} {word}" for number, word in counts if number)
    lost = "not live · " if link is not None and link.is_failing else ""
    return safe_text(f"{lost}{words or 'runwarden'} · {profile}", limit=MAX_TITLE)


def keep_last_frame(app: App[Any], keep: KeepFrame, profile: str) -> None:
    """Keep the list of runs, if it is on the screen, for the next start."""
    on_runs = app.is_running and app.current_mode == "runs" and len(app.screen_stack) == 1
    # At the very start there is no table yet, and an empty one is not worth keeping.
    if not (on_runs and any(table.window.runs for table in app.screen.query(RunTable))):
        return
    if strips := app.screen._compositor.render_strips():  # noqa: SLF001 — Textual has no public method for it
        style = next((segment.style for segment in strips[0] if segment.style is not None), Style.null())
        title = Segment(f" runwarden  {safe_text(profile, limit=28)}   ◌ ", style + _DIM)
        # No closing code: the time is appended in the same colours.
        head = Strip([title]).render(app.console).removesuffix("\x1b[0m")
        keep(app.size, head, ["", *(strip.apply_style(_DIM).render(app.console) for strip in strips[1:])])


_PLACE: Final = re.compile(r"\x1b\[(\d+);(\d+)H")
_STYLE: Final = re.compile(r"\x1b\[[\d;]*m")
_PARTS: Final = re.compile(r"\x1b\[[\d;]*m[^\x1b]*\x1b\[0m|[^\x1b]+|\x1b.*", re.DOTALL)
"""A text in one style, a text in none, or all that follows another sequence."""
_OTHER_SCREEN: Final = "\x1b[?1049"
"""The prefix of sequences with which a program takes over the terminal or releases it."""


class WrittenText(Struct, eq=False):
    """The text that the terminal shows, by its position."""

    _rows: dict[int, dict[int, tuple[str, int]]] = {}
    """A text and its width in cells, by row and column."""
    _cursor: tuple[int, int] | None = None

    def changes(self, output: str, height: int) -> str:
        """The part of this output that the terminal does not show yet; all of it if it draws every row."""
        before, *placed = _PLACE.split(output)
        texts = list(zip(map(int, placed[::3]), map(int, placed[1::3]), placed[2::3], strict=True))
        # A frame ends by placing the cursor.
        cursor = texts.pop()[:2] if texts and not texts[-1][2] else None
        if _OTHER_SCREEN in output or len({y for y, _, _ in texts}) >= height:
            self._rows.clear()
        changed = before + "".join(self._difference(y, x, text.removesuffix("\n")) for y, x, text in texts)
        if cursor is None or not (changed or cursor != self._cursor):
            return changed
        self._cursor = cursor
        return "{}\x1b[{};{}H".format(changed, *cursor)

    def _difference(self, y: int, x: int, text: str) -> str:
        row = self._rows.setdefault(y, {})
        old_text, shown_width = row.get(x, ("", 0))
        if text == old_text:
            return ""
        width = _width(text)
        for column, (_, cells) in tuple(row.items()):
            if column < x + width and x < column + cells:
                del row[column]
        row[x] = text, width
        old = _PARTS.findall(old_text)
        new = _PARTS.findall(text)
        first = 0
        last = 0
        if width == shown_width:
            shortest = min(len(old), len(new))
            while first < shortest and old[first] == new[first] and _is_plain(new[first]):
                x += _width(new[first])
                first += 1
            if all(map(_is_plain, (*old[first:], *new[first:]))):
                while last < shortest - first and old[-1 - last] == new[-1 - last]:
                    last += 1
        return f"\x1b[{y};{x}H{''.join(new[first : len(new) - last])}"


def _width(text: str) -> int:
    return cell_len(_STYLE.sub("", text))


def _is_plain(part: str) -> bool:
    """Whether every terminal draws each character one cell wide; terminals disagree about other characters."""
    return _width(part) == len(_STYLE.sub("", part))


class SelectableEvent(Event):
    """A threading event that a selector can also wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.descriptor, self._sender = os.pipe()
        os.set_blocking(self.descriptor, False)

    def set(self) -> None:
        super().set()
        os.write(self._sender, b"\0")

    def clear(self) -> None:
        super().clear()
        with suppress(BlockingIOError):
            os.read(self.descriptor, 1024)


class TerminalDriver(LinuxDriver):
    """Textual's driver, which writes only changes, sleeps without input, sets a title, and continues after any stop."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._written = WrittenText()
        self._app_on_show = app
        self.exit_event: SelectableEvent = SelectableEvent()
        self._title = ""
        """The title on show; empty while the terminal shows another."""
        self._hidden_title = ""
        """The title that was on show until another program got the terminal."""

    def write(self, data: str) -> None:
        """Write only the part that the terminal does not show yet."""
        if changes := self._written.changes(data, self._app_on_show.size.height):
            super().write(changes)

    def run_input_thread(self) -> None:
        """Handle input as it comes. Textual's own method wakes ten times a second."""
        parser = XTermParser()
        decode = getincrementaldecoder("utf-8")().decode
        wait_s: float | None = ESCAPE_S
        with SelectSelector() as selector:
            selector.register(self.exit_event.descriptor, EVENT_READ)
            selector.register(self.fileno, EVENT_READ)
            while not self.exit_event.is_set():
                has_input = any(key.fd == self.fileno for key, _ in selector.select(wait_s))
                if has_input and not (octets := os.read(self.fileno, 4096)):
                    selector.unregister(self.fileno)  # The input has ended.
                elif has_input and (text := decode(octets)):
                    for event in parser.feed(text):
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)
                wait_s = ESCAPE_S if has_input else None
        # Movements of the mouse that are still on their way are discarded at the end, instead of typed into a shell.
        time.sleep(ESCAPE_S)

    def show_title(self, title: str) -> None:
        """Set the window's title, until another program has the terminal."""
        if title != self._title:
            keep = "" if self._title else KEEP_TITLE
            self._title = title
            self.write(f"{keep}\x1b]2;{title}\x07")

    def stop_application_mode(self) -> None:
        self._hidden_title = self._title
        self._title = ""
        if self._hidden_title:
            self.write(GIVE_TITLE_BACK)
        super().stop_application_mode()

    def resume_application_mode(self) -> None:
        """Take the terminal up again, unless the app is ending: a lost terminal sends SIGHUP, then SIGCONT.

        A process gets no notice of a SIGSTOP, so Textual would begin a second time: two threads would read the keys,
        and the console's modes would be restored at the end as those from before it.
        """
        if self._app_on_show.return_code is not None:
            return
        if self._key_thread is not None and self._key_thread.is_alive():
            # Textual would discard keys typed since then, unless its reader has stopped before.
            self.exit_event.set()
            self._key_thread.join()
            self.suspend_application_mode()
            self.exit_event.clear()
        super().resume_application_mode()
        self._title = ""  # It was set in vain if the shell had continued the process in the background.
        self.show_title(self._hidden_title)
        # The terminal shows nothing of the frame, although nothing has changed.
        self._app_on_show.call_later(self._app_on_show.refresh)
