"""Running one of the user's own commands: filled in, shown if that was asked for, and what became of it told."""

import shlex
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from app.console.base_screen import BaseScreen
from app.console.keys.own_commands import (
    CommandUnusableError,
    facts,
    filled_in,
    needs_run,
    run_beside,
    run_in_terminal,
    shown,
)
from app.console.session import Session
from app.console.sheet import Sheet, clicked
from app.console.terminal.terminal import Terminal
from app.text import SafeText, safe_text
from storage.errors import StorageError

if TYPE_CHECKING:
    from textual.app import App

    from app.config import Command
    from storage.records import Run


async def run_own_command(app: "App[Any]", session: Session, terminal: Terminal, command: "Command") -> None:
    """Runs it on the run in focus, and says how it ended; whatever stands in its way is said as well."""
    name = safe_text(command.name, limit=60)
    try:
        run = await _run_in_focus(app, session) if needs_run(command.argv) else None
        argv = filled_in(command.argv, facts(session.profile.name, session.profile.base_url, run))
        if command.confirm and not await app.push_screen_wait(ConfirmCommandScreen(name, shown(argv))):
            return
        if command.terminal:
            _tell(session, name, _with_terminal(app, terminal, argv), "")
        else:
            session.notify(f"{name}: running…")
            ended = await run_beside(argv)
            _tell(session, name, ended.code, ended.last_line)
    except (CommandUnusableError, StorageError) as error:
        session.notify(f"{name}: {error}", severity="error")


class ConfirmCommandScreen(Sheet[bool]):
    """Shows a command as it would be run; enter leaves it, so that nothing runs by habit."""

    LEAVE = "answer(False)"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "run it", id="command.confirm"),
        Binding("escape,n,q,enter", "answer(False)", "leave it", id="command.leave"),
    ]
    CSS = """
    ConfirmCommandScreen { align: center middle; background: $background 60%; }
    ConfirmCommandScreen > Vertical {
        width: 78; max-width: 96%; height: auto; max-height: 90%; padding: 1 2; overflow-y: auto;
        border: round $warning; border-title-color: $warning; background: $surface;
    }
    ConfirmCommandScreen Static { height: auto; }
    ConfirmCommandScreen #keys { margin: 1 0 0 0; }
    """

    def __init__(self, name: SafeText, command: SafeText) -> None:
        super().__init__()
        self._title = name
        self._command = command

    def compose(self) -> ComposeResult:
        """What would be run, and the two keys."""
        with Vertical() as sheet:
            sheet.border_title = Content(f"Run: {self._title}")
            yield Static(Content(self._command), markup=False)
            runs = Content.assemble(("y", "$accent bold"), " runs it")
            leaves = Content.assemble(("esc", "$accent bold"), " or enter leaves it")
            keys = (clicked(runs, "screen.answer(True)"), clicked(leaves, "screen.answer(False)"))
            answers = Static(Content("    ").join(keys), id="keys", markup=False)
            # They keep their own colours: a link would have one for the key and what it does.
            answers.auto_links = False
            yield answers

    def action_answer(self, answer: bool) -> None:  # noqa: FBT001 — Textual passes an action's arguments by place
        """Takes the answer."""
        self.dismiss(answer)


async def _run_in_focus(app: "App[Any]", session: Session) -> "Run | None":
    screen, engine = app.screen, session.engine
    run_id = screen.focused_run_id if isinstance(screen, BaseScreen) else None
    detail = await engine.cache.detail(run_id) if engine is not None and run_id is not None else None
    return detail.run if detail is not None else None


def _with_terminal(app: "App[Any]", terminal: Terminal, argv: tuple[str, ...]) -> int:
    terminal.give_title_back()
    try:
        with app.suspend():
            # A pager's ctrl+c is the pager's: ours comes back when it has ended.
            return run_in_terminal(argv)
    except SuspendNotSupported as error:
        raise CommandUnusableError(f"There is no terminal to give away. By hand: {shlex.join(argv)}") from error


def _tell(session: Session, name: str, code: int | None, last_line: str) -> None:
    said = f": {last_line}" if last_line else ""
    if code == 0:
        session.notify(f"✓ {name}{said}")
    elif code is None:
        session.notify(f"✗ {name} took too long and was ended; terminal = true gives it all the time", severity="error")
    else:
        session.notify(f"✗ {name} ended with {code}{said}", severity="error")
