"""The typing half of every form: fields with their problems, a draft that survives, and a complete preview."""

import json
import os
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from textual import on, work
from textual.app import App, ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import ScreenResume
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input

from app.actions import FieldProblem, problems
from app.api.requests import WriteRequest, as_json
from app.config import data_folder
from app.console.forms.drafts import Drafts, Values
from app.console.forms.fields import FormFields
from app.console.forms.form_draft import DraftSwitch, FormDraft
from app.console.forms.instructions import EditorError, TemplatePicker, edit, filled_in
from app.console.session import CURE_S, guarded_dispatch
from app.console.session.coalesced_task import CoalescedTask
from app.console.sheets import OVER_CSS
from app.engine import Engine
from app.events import ActionChanged, CacheChangedElsewhere, Event
from app.text import SafeText, safe_block, safe_text
from storage.records import Action
from widgets.badges import Tone
from widgets.forms.dialog import FormButton, FormDialog, FormPhase
from widgets.forms.field import FormField
from widgets.forms.pages import RequestPreview
from widgets.frame.styled_once import add_size_classes, keep_first_styles

if TYPE_CHECKING:
    from textual.timer import Timer

    from app.console.session.coalesced_task import Start


RequestOrProblems = WriteRequest | tuple[FieldProblem, ...]
"""A request as typed, or the problems that prevent it."""
DRAFTS_FILE: Final = "drafts.json"
_HEIGHTS: Final = [(0, "-short"), (34, "-tall")]
_DRAFT_AFTER_S: Final = 0.5
"""A draft is stored this long after the last key."""
_PREVIEW_CHARACTERS: Final = 100_000

_VERBS: Final = (
    FormButton("close", "Close", "esc", "back", ("editing",)),
    FormButton("back", "Back", "esc", "back", ("preview", "outcome")),
    FormButton("swap", "Start fresh", "^n", "swap_draft", ("editing",)),
    FormButton("draft", "Draft", "^n", "swap_draft", ("editing",)),
    FormButton("editor", "Editor", "^e", "edit", ("editing",)),
    FormButton("template", "Template", "^t", "template", ("editing",)),
    FormButton("preview", "Preview", "^s", "forward", ("editing",), is_primary=True),
)


def forget_closed_theme_watchers(app: App[Any]) -> None:
    """Release the texts of closed forms: Textual keeps each as a watcher of the theme until the theme changes."""
    watchers = getattr(app, "__watchers", {}).get("theme", [])
    watchers[:] = [watcher for watcher in watchers if not watcher[0]._closing]  # noqa: SLF001 — as Textual does it


class FormScreen(ModalScreen[Action | None]):
    """A form's fields, draft and preview; `ActionForm` sends."""

    CSS_PATH = OVER_CSS
    # Not the default style sheet: the console's own styles screens, and forms lie over one.
    CSS = """
    FormScreen { align: center middle; background: $background 60%; }
    FormScreen.-long.-tall FormDialog { height: 30; }
    FormScreen.-long.-tall FormField { margin-bottom: 1; }
    """
    VERTICAL_BREAKPOINTS = _HEIGHTS
    SCOPED_CSS = False
    BINDINGS: ClassVar[list[BindingType]] = [
        # Handled before the focused input sees them, wherever the focus is.
        Binding("ctrl+s,ctrl+enter", "forward", "Preview, then send", priority=True),
        Binding("escape", "back", "Back", priority=True),
        Binding("ctrl+n", "swap_draft", "Start fresh, or bring the draft back", priority=True),
        Binding("ctrl+e", "edit", "Open your editor", priority=True),
        Binding("ctrl+t", "template", "Insert a template", priority=True),
    ]
    TITLE_TEXT: ClassVar[str]
    VERBS: ClassVar[tuple[FormButton, ...]] = _VERBS

    def __init__(self, engine: Engine, *, draft: str, fresh_wins: bool = False) -> None:
        """Prepare; the draft is named after what the form was opened from.

        With `fresh_wins` the form begins with its initial values, and the draft waits behind a key.
        """
        super().__init__()
        self.engine = engine
        self._rows = tuple(self.make_rows())
        self.fields = FormFields(self._rows, self.problems)
        self.set_class(self.fields.instructions is not None, "-long")
        drafts = Drafts(data_folder(engine.settings, engine.profile) / DRAFTS_FILE)
        self.form_draft = FormDraft(drafts, draft, self.values, engine.clock, self._warn)
        self.switch = DraftSwitch(engine, self.form_draft, self.requests, self._note, fresh_wins=fresh_wins)
        self._reporting = CoalescedTask(self._report, cast("Start", self.run_worker))
        self._unsubscribe: Callable[[], None] = lambda: None
        self._draft_timer: Timer | None = None
        self.phase: FormPhase = "editing"
        self.beginning: Values | None = None
        """The initial values if there is no draft; None: as composed."""
        self.request: WriteRequest | None = None
        """The request that was previewed."""

    @abstractmethod
    def make_rows(self) -> Sequence[Widget]:
        """Return facts and fields, in order."""

    @abstractmethod
    def build(self, values: Values) -> RequestOrProblems:
        """Return the request of these values, or their problems."""

    def requests(self, values: Values) -> tuple[WriteRequest, ...]:
        """Return all requests of these values; none while there are problems."""
        built = self.build(values)
        return () if isinstance(built, tuple) else (built,)

    @abstractmethod
    def consequence(self, request: WriteRequest) -> str:
        """Describe the effect of sending in a sentence."""

    def placeholders(self) -> dict[str, str]:
        """The values of a template's placeholders."""
        values = self.values
        return {"repository": values.get("repository", ""), "branch": values.get("branch_name", "")}

    def compose(self) -> ComposeResult:
        """Compose one dialog."""
        add_size_classes(self)
        # Focused from the first frame: text typed before the draft is read belongs into the same field.
        first = self.fields.to_focus().key
        self.AUTO_FOCUS = f"#field-{first} Input, #field-{first} TextArea"  # type: ignore[misc]  # read from here
        yield FormDialog(self.TITLE_TEXT, self._rows, self.VERBS)

    @property
    def dialog(self) -> FormDialog:
        """The frame, with the notes and the buttons."""
        return self.query_one(FormDialog)

    @property
    def values(self) -> Values:
        """The values by field, as typed."""
        return self.fields.values

    _dispatch_message = guarded_dispatch

    def on_screen_resume(self, event: ScreenResume) -> None:
        """Keep the styles that the form was mounted with."""
        keep_first_styles(self, event)

    async def on_mount(self) -> None:
        """Restore a draft and focus the first empty field."""
        self._unsubscribe = self.engine.subscribe(self._engine_changed)
        if (values := await self.switch.restore() or self.beginning) is not None:
            self.fields.fill(values)
        self.enter("editing")
        self._offer_repositories()

    async def on_unmount(self) -> None:
        """Keep the draft, however the form was closed."""
        self._unsubscribe()
        await self.form_draft.flush()
        forget_closed_theme_watchers(self.app)

    def _engine_changed(self, event: Event) -> None:
        if isinstance(event, ActionChanged | CacheChangedElsewhere):
            self.actions_changed()

    def actions_changed(self) -> None:
        """React to a change of the ledger: an unknown outcome may be known now."""
        self._reporting.ask()

    async def _report(self) -> None:
        if self.phase == "editing":
            await self.switch.report()

    def _note(self, text: SafeText, tone: Tone = "quiet") -> None:
        if self.is_mounted and self.is_running:
            self.dialog.note(text, tone)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Each key works in its own phases only; none while sending."""
        del parameters
        editing = self.phase == "editing"
        instructed = editing and self.fields.instructions is not None
        means = {
            "forward": editing or self.phase == "preview",
            "back": self.phase != "sending",
            "swap_draft": editing and self.switch.other is not None,
            "edit": instructed,
            "template": instructed and bool(self.engine.settings.templates),
        }
        return means.get(action, True)

    def action_forward(self) -> None:
        """Show the preview, unless there are problems."""
        if self.fields.insist():
            return
        built = self.build(self.values)
        if not isinstance(built, tuple):
            self.request = built
            self._show_preview(built)

    def action_back(self) -> None:
        """Go back one step; from the fields, close."""
        if self.phase == "editing":
            self.dismiss(None)
        else:
            self.enter("editing")

    def action_swap_draft(self) -> None:
        """Swap the draft for the initial values, and back."""
        if (other := self.switch.swap(self.values)) is not None:
            self.fields.fill(other)
            self.enter("editing")

    def action_edit(self) -> None:
        """Open the instructions in the user's editor, which takes the terminal."""
        if (field := self.fields.instructions) is None:
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
        """Insert a configured text at the cursor, with its placeholders filled in."""

        def insert(template: str | None) -> None:
            if template is None or self.fields.instructions is None:
                return
            text, missing = filled_in(template, self.placeholders())
            self.fields.instructions.insert(text)
            if missing:
                names = ", ".join(f"{{{name}}}" for name in missing)
                self.dialog.note(safe_text(f"Not known here, so left for you to fill in: {names}"), "warn")

        self.app.push_screen(TemplatePicker(self.engine.settings.templates), insert)

    def enter(self, phase: FormPhase) -> None:
        """Enter another phase."""
        self.phase = phase
        self.dialog.enter(phase, self.verbs_without_meaning())
        if phase == "editing":
            self.fields.to_focus().take_focus()
            self._reporting.ask()
        elif phase == "preview":
            # Focus the preview, never the dangerous button.
            self.query_one(RequestPreview).focus()
        self.refresh_bindings()

    def verbs_without_meaning(self) -> frozenset[str]:
        """Buttons that have no effect now."""
        without = {
            "swap": self.switch.other is None or self.switch.is_fresh,
            "draft": self.switch.other is None or not self.switch.is_fresh,
            "editor": self.fields.instructions is None,
            "template": self.fields.instructions is None or not self.engine.settings.templates,
        }
        return frozenset(name for name, missing in without.items() if missing)

    @on(Input.Submitted)
    def _next_field(self) -> None:
        self.focus_next()

    @on(FormField.Changed)
    def _changed(self, event: FormField.Changed) -> None:
        self.fields.last_typed = event.field
        if event.field == "repository":
            self._offer_branches()
        self.dialog.banner(None)
        self.fields.complain()
        self.form_draft.typed(self.values)
        if self._draft_timer is not None:
            self._draft_timer.stop()
        self._draft_timer = self.set_timer(_DRAFT_AFTER_S, self.form_draft.flush)

    @on(FormField.Left)
    def _left(self) -> None:
        self.fields.complain()

    def _warn(self, text: str) -> None:
        # Through the app: the form may be closing, and its draft could not be stored.
        self.app.notify(safe_text(text), severity="warning", markup=False, timeout=CURE_S)

    @work(group="offer")
    async def _offer_repositories(self) -> None:
        await self.fields.offer_repositories(self.engine.cache)
        self._offer_branches()

    @work(group="offer branches", exclusive=True)
    async def _offer_branches(self) -> None:
        await self.fields.offer_branches(self.engine.cache)

    def problems(self) -> tuple[FieldProblem, ...]:
        """The problems of the values."""
        built = self.build(self.values)
        return built if isinstance(built, tuple) else problems(built)

    def _show_preview(self, request: WriteRequest) -> None:
        body = json.dumps(json.loads(as_json(request)), indent=2, ensure_ascii=False)
        self.query_one(RequestPreview).show(
            "POST",
            safe_text(f"{self.engine.profile.base_url}{request.path}"),
            safe_block(body, limit=_PREVIEW_CHARACTERS),
            Content(safe_text(self.consequence(request))),
        )
        self.enter("preview")
