"""Sheets: boxes over a screen, closed by escape or a click outside, often with a choice."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.console.guard import guarded_event
from app.engine.text import safe_text
from storage import RunwardenError
from widgets.forms.inputs import LineInput
from widgets.kit import SecondPress, after_refresh, hidden
from widgets.kit.badges import NO_MARK, STYLES, ProfileMark, Tone
from widgets.kit.choice_lists import Options
from widgets.kit.line_text import clickable

T = TypeVar("T")
OVER_CSS: Final = Path(__file__).with_name("over.tcss")
"""The styles of sheets and dialogs, which are loaded after startup."""


def key_words(*keys: tuple[str, str, str]) -> Content:
    """Keys that can be clicked: each key, its words, and its action."""
    parts = [clickable(Content.assemble((key, "$accent bold"), f" {words}"), action) for key, words, action in keys]
    return Content("    ").join(parts)


def key_line(*keys: tuple[str, str, str]) -> Static:
    """A line of keys to click; see `key_words`."""
    line = Static(key_words(*keys), classes="keys", markup=False)
    # Without link colours, which would be the same for the key and its effect.
    line.auto_links = False
    return line


class Sheet(ModalScreen[T]):
    """A box over the screen. Forms are not sheets: they have buttons and keep typed text."""

    CSS_PATH = OVER_CSS
    on_event = guarded_event

    def action_leave(self) -> None:
        self.dismiss(None)

    async def on_click(self, event: events.Click) -> None:
        widget, _ = self.get_widget_at(event.screen_x, event.screen_y)
        if widget is self:
            await self.run_action("leave")


class SheetNote(Static):
    """The line of a sheet for a problem, the meaning of a choice, or progress."""

    def __init__(self) -> None:
        super().__init__(markup=False, id="picker-note")

    def say(self, text: str, tone: Tone = "quiet") -> None:
        """Replace the line; foreign text in it need not be safe yet."""
        self.update(Content.styled(safe_text(text), STYLES[tone]))


class PickerScreen(Sheet[T | None]):
    """Closes with the choice, or with None if nothing changes."""

    TITLE_TEXT: str = ""
    HINT: str = ""
    """The hint about keys, with dots between them."""
    mark: ProfileMark = NO_MARK
    """The profile that is written to, shown next to the title."""
    CLICKABLE: ClassVar[Mapping[str, str]] = {}
    """Parts of the hint that can be clicked, with their actions."""
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "cancel", id="picker.leave")]

    def compose(self) -> ComposeResult:
        with Vertical(id="picker") as box:
            self.mark.entitle(box, self.TITLE_TEXT)
            box.border_subtitle = "esc close" if self.HINT else ""
            yield from self.compose_choice()
            yield from self.compose_keys()

    def compose_keys(self) -> ComposeResult:
        parts = [
            clickable(Content(part), f"screen.{action}") if (action := self.CLICKABLE.get(part)) else Content(part)
            for part in self.HINT.split(" · ")
        ]
        yield Static(Content(" · ").join(parts), markup=False, id="picker-hint")

    def compose_choice(self) -> ComposeResult:
        yield from ()

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]], *, name: str = "", group: str) -> None:
        """Run the work as a worker of the app: leaving the sheet does not stop it half-way."""
        self.app.run_worker(cast("Any", work), name, group)

    def finish(self, result: T) -> None:
        """Close with the result of the work; if the sheet was left before, show it in a toast."""
        if self.is_current:
            self.dismiss(result)
        else:
            self.app.notify(safe_text(str(result)), markup=False)

    def report_failure(self, reason: str) -> None:
        """Report why the work failed: in the note or, once the sheet is closed, in a toast."""
        if self.is_current:
            self.query_one(SheetNote).say(reason, "bad")
        else:
            self.app.notify(safe_text(reason), severity="error", markup=False)


class ChoiceSheet(PickerScreen[T], Generic[T]):
    """Closes with the value of the choice."""

    HINT = "enter or 1-9 choose"
    BINDINGS: ClassVar[list[BindingType]] = [
        *(hidden(str(digit), f"choose({digit})", f"the {digit}. choice") for digit in range(1, 10)),
        Binding("delete,backspace", "forget", "delete", id="views.forget"),
    ]

    def __init__(
        self,
        title: str,
        choices: Sequence[tuple[Content, T]],
        here: int | None = None,
        forget: Callable[[T], T] | None = None,
    ) -> None:
        """Prepare; the cursor begins on the choice with the index `here`, if there is one.

        With `forget`, a key closes the sheet with what this makes of the choice under the cursor.
        """
        super().__init__()
        self._forget = forget
        self.TITLE_TEXT = title
        self._choices = choices
        self._here = here

    def compose_choice(self) -> ComposeResult:
        yield Options(
            *(Option(Content.assemble(f"{number}  ", text)) for number, (text, _) in enumerate(self._choices, 1))
        )

    def on_mount(self) -> None:
        if self._here is not None:
            self.query_one(Options).highlighted = self._here

    @on(OptionList.OptionSelected)
    def choose_option(self, message: OptionList.OptionSelected) -> None:
        self.action_choose(message.option_index + 1)

    def action_choose(self, number: int) -> None:
        if number <= len(self._choices):
            self.dismiss(self._choices[number - 1][1])

    def action_forget(self) -> None:
        if self._forget is not None and (at := self.query_one(Options).highlighted) is not None:
            self.dismiss(self._forget(self._choices[at][1]))


Work = Callable[[], Awaitable[str]]
"""Does the confirmed work and returns the result; it may raise an OSError or any `RunwardenError`."""


class NotSureError(RunwardenError):
    """The work needs a second confirmation with ctrl+s, as the message says; then `anyway` does it."""

    def __init__(self, message: str, anyway: Work) -> None:
        super().__init__(message)
        self.anyway = anyway


class FolderWork(NamedTuple):
    """Work in a folder that the sheet asks for."""

    offered: Path | str
    do: Callable[[Path], Awaitable[str]]


class ConfirmSheet(PickerScreen[str]):
    """Shows the facts, asks for a folder if needed, and closes with the result as text.

    The facts scroll; the keys stay in view however low the terminal is.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        hidden("enter", "go_on", "confirm", id="confirm.go_on"),
        hidden("ctrl+s", "anyway", "confirm anyway", id="confirm.anyway", priority=True),
        hidden("ctrl+k", "instead", "confirm the other choice", id="confirm.instead", priority=True),
        hidden("j", "scroll(1)", "down"),
        hidden("k", "scroll(-1)", "up"),
    ]

    def __init__(
        self,
        title: str,
        facts: Sequence[Content],
        work: Work | FolderWork | None = None,
        *,
        verb: str,
        leaving: str,
        instead: tuple[str, Work] | None = None,
    ) -> None:
        """Prepare. Without `work` the result is `verb`.

        `verb` and `leaving` name the action and escape: "Cancel 2 runs", "Keep them". Work without a folder
        is final: ctrl+s does it once the facts were on screen for a moment, and enter does not. ctrl+k does the
        alternative that `instead` names.
        """
        super().__init__()
        self.TITLE_TEXT = title
        self._folder = work if isinstance(work, FolderWork) else None
        self._do: Work | None = None if isinstance(work, FolderWork) else work
        does = ("ctrl+s", verb, "screen.anyway") if self._folder is None else ("enter", verb, "screen.go_on")
        other = [("ctrl+k", instead[0], "screen.instead")] if instead is not None else []
        self._keys = (does, *other, ("esc", leaving, "screen.leave"))
        self._instead = instead
        self._facts = facts
        self._refused: tuple[str, Work] | None = None
        """The refused folder as typed, and the work that ctrl+s does there anyway."""
        self._is_busy = False
        self._second_press = SecondPress()

    def compose_choice(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(Content("\n").join(self._facts), markup=False)

    def compose_keys(self) -> ComposeResult:
        with Vertical(id="foot"):
            if self._folder is not None:
                offered = str(self._folder.offered)
                yield LineInput(offered, placeholder="A folder", compact=True, select_on_focus=False)
            yield SheetNote()
            yield key_line(*self._keys)

    def on_mount(self) -> None:
        """Put the cursor behind the path; without one, scroll the facts by keys."""
        self.query_one(VerticalScroll if self._folder is None else LineInput).focus()
        after_refresh(self, self._second_press.start_pause)

    def action_scroll(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    @on(Input.Submitted)
    def action_go_on(self) -> None:
        """Do the work, if it can be undone."""
        if self._folder is None:
            verb = self._keys[0][1]
            self.query_one(SheetNote).say(f"Press ctrl+s to {verb[0].lower()}{verb[1:]}.", "bad")
        elif typed := self.query_one(LineInput).value.strip():
            self._start(partial(self._folder.do, typed_path(typed)))
        else:
            self.query_one(SheetNote).say("Name a folder.", "bad")

    def action_instead(self) -> None:
        if self._instead is not None and not self._second_press.press():
            self.query_one(SheetNote).say("Check it, then press ctrl+k again.", "warn")
        elif self._instead is not None:
            self._start(self._instead[1])

    def action_anyway(self) -> None:
        """Do the refused work anyway, or the work that cannot be undone."""
        if self._folder is not None:
            if self._refused is not None and self._refused[0] == self.query_one(LineInput).value:
                self._start(self._refused[1])
        elif not self._second_press.press():
            self.query_one(SheetNote).say("Check it, then press ctrl+s again.", "warn")
        else:
            self._start(self._do)

    def _start(self, do: Work | None) -> None:
        typed = "" if self._folder is None else self.query_one(LineInput).value

        async def work(do: Work) -> None:
            self._refused = None
            try:
                result = await do()
            except (OSError, RunwardenError) as error:
                self._refused = (typed, error.anyway) if isinstance(error, NotSureError) else None
                self.report_failure(str(error))
            else:
                self.finish(result)
            finally:
                self._is_busy = False

        if do is None:
            self.dismiss(self._keys[0][1])
        elif not self._is_busy:
            self._is_busy = True
            self.query_one(SheetNote).say("Working…", "busy")
            self.begin(partial(work, do), group="send" if self._folder is None else "take over")


def typed_path(text: str) -> Path:
    """The path that was typed, with `~` expanded where that user exists."""
    path = Path(text.strip())
    try:
        return path.expanduser()
    except RuntimeError:
        # No user has that name: the path is kept as typed, and reported as any missing folder.
        return path
