"""The typing half of every form: fields that say what is wrong, a draft that survives, a preview that hides nothing."""

import json
import os
from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual import on, work
from textual.app import App, ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input

from app.actions import Problem, problems
from app.api.requests import WriteRequest, as_json
from app.config import data_folder
from app.console.forms.drafts import Draft, Drafts, FormDraft, Values
from app.console.forms.instructions import EditorError, TemplatePicker, edit
from app.console.session import CURE_S, guarded
from app.engine import Engine
from app.text import SafeText, safe_block, safe_text
from app.times import ago
from storage.errors import StorageError
from storage.records import Action
from widgets.badges import Tone
from widgets.forms.dialog import FormButton, FormDialog, Phase
from widgets.forms.field import ChoiceField, FormField, ParagraphField
from widgets.forms.pages import RequestPreview
from widgets.forms.pairs import Pairs, unpacked

if TYPE_CHECKING:
    from textual.timer import Timer


_READ_ONLY: Final = "This profile is read-only: you may prepare and preview, nothing is sent."


def standing(engine: Engine, draft: Draft | None) -> tuple[SafeText, Tone]:
    """What hinders sending comes first, then where the text comes from."""
    if engine.actions.read_only:
        return safe_text(_READ_ONLY), "warn"
    if engine.token_problem is not None:
        return safe_text(str(engine.token_problem)), "warn"
    return _of_draft(draft, engine.clock())


def _of_draft(draft: Draft | None, now: datetime) -> tuple[SafeText, Tone]:
    if draft is None:
        return safe_text(""), "quiet"
    if draft.sent_at is not None:
        sent = ago(draft.sent_at, now)
        return safe_text(f"Sent {sent}; the outcome is unknown: look before you send it again."), "warn"
    return safe_text(f"Your draft from {ago(draft.saved_at, now)}."), "quiet"


Built = WriteRequest | tuple[Problem, ...]
"""A request as typed, or everything that keeps it from being one."""
DRAFTS_FILE: Final = "drafts.json"
_DRAFT_AFTER_S: Final = 0.5
"""A draft is kept this long after the last key."""
_PREVIEW_CHARACTERS: Final = 100_000

_VERBS: Final = (
    FormButton("close", "Close", "esc", "back", ("editing",)),
    FormButton("back", "Back", "esc", "back", ("preview", "outcome")),
    FormButton("swap", "Start fresh", "^n", "swap_draft", ("editing",)),
    FormButton("editor", "Editor", "^e", "edit", ("editing",)),
    FormButton("template", "Template", "^t", "template", ("editing",)),
    FormButton("preview", "Preview", "^s", "forward", ("editing",), is_primary=True),
)


def forget_closed_theme_watchers(app: App[Any]) -> None:
    """Release the paragraphs of closed forms: Textual keeps each as a watcher of the theme until the theme changes."""
    watchers = getattr(app, "__watchers", {}).get("theme", [])
    watchers[:] = [watcher for watcher in watchers if not watcher[0]._closing]  # noqa: SLF001 — as Textual does it


class FormScreen(ModalScreen[Action | None]):
    """A form up to the moment of sending."""

    # Not the default style sheet: the console's own says how screens look, and these lie over one.
    CSS = """
    FormScreen { align: center middle; background: $background 60%; }
    FormScreen.-long.-tall FormDialog { height: 30; }
    FormScreen.-long.-tall FormField { margin-bottom: 1; }
    """
    VERTICAL_BREAKPOINTS = [(0, "-short"), (34, "-tall")]  # noqa: RUF012 — Textual declares it for instances
    SCOPED_CSS = False
    BINDINGS: ClassVar[list[BindingType]] = [
        # Before the focused input: all of these mean the form, wherever one types.
        Binding("ctrl+s,ctrl+enter", "forward", "Preview, then send", priority=True),
        Binding("escape", "back", "Back", priority=True),
        Binding("ctrl+n", "swap_draft", "Start fresh, or bring the draft back", priority=True),
        Binding("ctrl+e", "edit", "Open your editor", priority=True),
        Binding("ctrl+t", "template", "Insert a template", priority=True),
    ]
    TITLE_TEXT: ClassVar[str]
    VERBS: ClassVar[tuple[FormButton, ...]] = _VERBS

    def __init__(self, engine: Engine, *, draft: str) -> None:
        super().__init__()
        self.engine = engine
        self._rows = tuple(self.make_rows())
        self._fields = {row.key: row for row in self._rows if isinstance(row, FormField)}
        self._instructions = next((row for row in self._rows if isinstance(row, ParagraphField)), None)
        """None: this form takes no instructions."""
        self.set_class(self._instructions is not None, "-long")
        drafts = Drafts(data_folder(engine.settings, engine.profile) / DRAFTS_FILE)
        self.form_draft = FormDraft(drafts, draft, self.values, engine.clock, self._warn)
        self._other: Values | None = None
        """What ctrl+n would put in place of what stands there; None: nothing."""
        self._draft_timer: Timer | None = None
        self._last_typed = ""
        self.phase: Phase = "editing"
        self.request: WriteRequest | None = None
        """The request that was previewed."""

    @abstractmethod
    def make_rows(self) -> Sequence[Widget]:
        """Facts and fields, in order."""

    @abstractmethod
    def build(self) -> Built:
        """The request as typed, or why there is none yet."""

    @abstractmethod
    def consequence(self, request: WriteRequest) -> str:
        """What sending does, in a sentence."""

    def compose(self) -> ComposeResult:
        """One dialog."""
        yield FormDialog(self.TITLE_TEXT, self._rows, self.VERBS)

    @property
    def dialog(self) -> FormDialog:
        """The frame."""
        return self.query_one(FormDialog)

    @property
    def values(self) -> Values:
        """By field, as typed."""
        return {key: field.value for key, field in self._fields.items()}

    def pairs(self, key: str) -> Pairs:
        """What a field of keys and values holds."""
        return unpacked(self._fields[key].value)

    def field(self, key: str) -> FormField:
        """One field."""
        return self._fields[key]

    async def _dispatch_message(self, message: Message) -> None:
        await guarded(super()._dispatch_message(message), self.app._handle_exception)  # noqa: SLF001 — the app reports

    async def on_mount(self) -> None:
        """Restore an earlier draft, and focus the first empty field."""
        draft = await self.form_draft.restore()
        if draft is not None:
            self._other = self.form_draft.fresh
            self._fill(draft.values)
        self.enter("editing")
        self.dialog.note(*standing(self.engine, draft))
        self._offer_repositories()

    async def on_unmount(self) -> None:
        """Keep the draft, however the form was closed."""
        await self.form_draft.flush()
        forget_closed_theme_watchers(self.app)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Each key means something in its own phases only; while sending none does."""
        del parameters
        editing = self.phase == "editing"
        instructed = editing and self._instructions is not None
        means = {
            "forward": editing or self.phase == "preview",
            "back": self.phase != "sending",
            "swap_draft": editing and self._other is not None,
            "edit": instructed,
            "template": instructed and bool(self.engine.settings.templates),
        }
        return means.get(action, True)

    def action_forward(self) -> None:
        """From the fields to the preview."""
        for field in self._fields.values():
            field.touched = True
        if found := self._complain():
            self._fields.get(found[0].field, next(iter(self._fields.values()))).take_focus()
            return
        built = self.build()
        if not isinstance(built, tuple):
            self.request = built
            self._show_preview(built)

    def action_back(self) -> None:
        """One step back; from the fields that is the end."""
        if self.phase == "editing":
            self.dismiss(None)
        else:
            self.enter("editing")

    def action_swap_draft(self) -> None:
        """Exchange the draft for an empty form, and back."""
        if self._other is not None:
            now, other = self.values, self._other
            self._fill(other)
            self._other = now
            self.dialog.note(safe_text("^n brings back what stood here."))

    def action_edit(self) -> None:
        """Hand the instructions to the person's editor, and the terminal with them."""
        if (field := self._instructions) is None:
            return
        try:
            with self.app.suspend():
                text = edit(field.value, os.environ)
        except SuspendNotSupported:
            self.dialog.note(safe_text("This terminal cannot be handed over; type here."), "warn")
        except EditorError as error:
            self.dialog.note(safe_text(str(error)), "warn")
        else:
            if text != field.value:
                field.fill(text)
        field.take_focus()

    def action_template(self) -> None:
        """Insert one of the configured texts at the cursor."""

        def insert(text: str | None) -> None:
            if text is not None and self._instructions is not None:
                self._instructions.insert(text)

        self.app.push_screen(TemplatePicker(self.engine.settings.templates), insert)

    def enter(self, phase: Phase) -> None:
        """Go to another phase."""
        self.phase = phase
        self.dialog.enter(phase, self.verbs_without_meaning())
        if phase == "editing":
            self._field_in_need().take_focus()
        elif phase == "preview":
            # Never the dangerous one: the preview takes the focus, not its button.
            self.query_one(RequestPreview).focus()
        self.refresh_bindings()

    def verbs_without_meaning(self) -> frozenset[str]:
        """Buttons that would do nothing just now."""
        without = {
            "swap": self._other is None,
            "editor": self._instructions is None,
            "template": self._instructions is None or not self.engine.settings.templates,
        }
        return frozenset(name for name, missing in without.items() if missing)

    @on(Input.Submitted)
    def _next_field(self) -> None:
        self.focus_next()

    @on(FormField.Changed)
    def _changed(self, event: FormField.Changed) -> None:
        self._last_typed = event.field
        self.dialog.banner(None)
        self._complain()
        self.form_draft.typed(self.values)
        if self._draft_timer is not None:
            self._draft_timer.stop()
        self._draft_timer = self.set_timer(_DRAFT_AFTER_S, self.form_draft.flush)

    @on(FormField.Left)
    def _left(self) -> None:
        self._complain()

    def _warn(self, text: str) -> None:
        # Not on the form: it may be closing, and with it goes what was typed.
        self.app.notify(safe_text(text), severity="warning", markup=False, timeout=CURE_S)

    @work(group="offer")
    async def _offer_repositories(self) -> None:
        fields = self.query(ChoiceField)
        if not fields:
            return
        try:
            known = await self.engine.cache.repositories()
        except StorageError:
            return  # Suggestions are a comfort; the screen behind says that the cache is broken.
        for field in fields:
            field.offer(known)

    def _fill(self, values: Values) -> None:
        for key, field in self._fields.items():
            field.fill(values.get(key, ""))
        self._last_typed = ""

    def _problems(self) -> tuple[Problem, ...]:
        built = self.build()
        return built if isinstance(built, tuple) else problems(built)

    def _complain(self) -> tuple[Problem, ...]:
        found = self._problems()
        by_field = {problem.field: problem.message for problem in reversed(found)}
        for key, field in self._fields.items():
            message = by_field.get(key) if field.touched else None
            field.complain(safe_text(message) if message else None)
        return found

    def _field_in_need(self) -> FormField:
        """The one last typed in; at first the one that most needs typing."""
        if self._last_typed in self._fields:
            return self._fields[self._last_typed]
        wrong = {problem.field for problem in self._problems()}
        fields = tuple(self._fields.values())
        return next((field for field in fields if field.key in wrong), fields[0])

    def _show_preview(self, request: WriteRequest) -> None:
        body = json.dumps(json.loads(as_json(request)), indent=2, ensure_ascii=False)
        self.query_one(RequestPreview).show(
            "POST",
            safe_text(f"{self.engine.profile.base_url}{request.path}"),
            safe_block(body, limit=_PREVIEW_CHARACTERS),
            Content(safe_text(self.consequence(request))),
        )
        self.enter("preview")
