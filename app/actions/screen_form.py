"""A form for one write: fields with inline problems, a draft, the exact request, and the outcome of sending it once."""

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar, Literal

from textual import on, work
from textual.actions import parse
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input

from app.actions.asked import filled_in
from app.actions.copies import UnfaithfulError, as_command, as_curl
from app.actions.drafts import Draft, FormDraft, Values
from app.actions.refusals import ActionRefusedError, BlockedError, FieldProblem, problems
from app.actions.screen_fields import Field, from_editor
from app.actions.screen_resolve import (
    HEIGHTS,
    DraftOutcome,
    ResolveForm,
    about_draft,
    blocked_outcome,
    settled_outcome,
    why_not_done,
)
from app.api.requests import WriteRequest, as_json
from app.console.guard import guarded_event
from app.console.session import FIX_TOAST_S, FollowRun, OpenRun, mark_of
from app.console.sheets import OVER_CSS, ChoiceSheet
from app.console.terminal import copy_out
from app.engine.engine import Engine
from app.engine.events import ActionChanged, Event, FilesChangedElsewhere, RunsChanged
from app.engine.text import safe_block, safe_text
from app.engine.times import ago, span
from storage import RunwardenError
from storage.errors import StorageError
from storage.records import Action, ActionFilter, RunFilter
from widgets.forms.dialog import (
    FormButton,
    FormDialog,
    FormPhase,
    OutcomePage,
    OutcomeText,
    RequestPreview,
    bindings_of,
)
from widgets.forms.field import ChoiceField, FormField, ParagraphField
from widgets.kit import SecondPress, after_refresh, hidden
from widgets.kit.badges import Tone

Built = tuple[WriteRequest, tuple[FieldProblem, ...]]
"""A request as typed, with placeholders for unreadable values, and a problem for each."""


class ActionForm(ModalScreen[Action | None]):
    """One write, from the first key to the outcome; closes with the action if it is confirmed or unknown."""

    CSS_PATH = OVER_CSS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BUTTONS: ClassVar[tuple[FormButton, ...]] = (
        FormButton("close", "Close", "esc", "back", ("editing",)),
        FormButton("back", "Back", "esc", "back", ("preview", "refused")),
        FormButton("swap", "Start fresh", "^n", "swap_draft", ("editing",)),
        FormButton("draft", "Draft", "^n", "swap_draft", ("editing",)),
        FormButton("editor", "Editor", "^e", "edit", ("editing",)),
        FormButton("template", "Template", "^t", "template", ("editing",)),
        FormButton("preview", "Preview", "^s", "forward", ("editing",), is_primary=True),
        FormButton("curl", "Copy as curl", "y", "copy_request('curl')", ("preview",)),
        FormButton("command", "Command", "Y", "copy_request('command')", ("preview",)),
        FormButton("send", "Send", "^s", "forward", ("preview",), is_primary=True),
        FormButton("resolve", "Resolve", "v", "resolve", ("refused", "outcome")),
        FormButton("follow", "Follow", "f", "follow", ("outcome",)),
        FormButton("open", "Open run", "enter", "open_run", ("outcome",), is_primary=True),
        FormButton("done", "Close", "esc", "back", ("outcome",), is_primary=True),
    )
    """All buttons; a key works in the phases of its button, if `is_possible`."""
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_of(BUTTONS),
        # With priority, the focus moves before the next key is read, however fast the user types.
        hidden("tab", "app.focus_next", priority=True),
        hidden("shift+tab", "app.focus_previous", priority=True),
        hidden("enter", "next_field", priority=True),
    ]
    SHOWS_TIME: ClassVar[bool] = True
    """Whether the form shows how long it has been sending."""
    TITLE_TEXT: ClassVar[str]
    DRAFT: ClassVar[str] = ""
    """The draft's name, if it does not depend on the form's origin."""
    FIELDS: tuple[Field, ...] = ()

    def __init__(
        self,
        engine: Engine,
        *,
        draft: str = "",
        values: Mapping[str, str] | None = None,
        is_ready: bool = False,
        focus: str = "",
    ) -> None:
        """Prepare; the draft is named after the form's origin.

        If it `is_ready`, it begins with the preview: of its `beginning` even if there is a draft, which a key shows.
        `focus`: the field to begin with, or empty for the one most in need of a value.
        """
        super().__init__()
        self.engine = engine
        self._initial = values or {}
        self._rows = tuple(self.make_rows())
        self.fields = {row.key: row for row in self._rows if isinstance(row, FormField)}
        self.instructions = next((row for row in self._rows if type(row) is ParagraphField), None)
        self.set_class(self.instructions is not None, "-long", update=False)
        self.form_draft = FormDraft(
            engine,
            draft or self.DRAFT,
            self.values,
            # Shown by the app, since the form may be closing when its draft cannot be stored.
            lambda text: self.app.notify(safe_text(text), severity="warning", markup=False, timeout=FIX_TOAST_S),
        )
        self._is_ready = is_ready
        self._other: Values | None = None
        """The values that ctrl+n shows instead, or None."""
        self._is_fresh = True
        """Whether the shown values are the initial ones, not those of a draft."""
        self._noted: DraftOutcome | None = None
        """The draft's outcome at the last note; None before the first note."""
        self._focus = self._last_typed = focus
        self._second_press = SecondPress()
        self._began = engine.clock()
        self._unsubscribe: Callable[[], None] = lambda: None
        self.phase: FormPhase = "editing"
        self.beginning: Values | None = None
        """The initial values if there is no draft, or None for those of the composed form."""
        self.closes_when_done = False
        """Whether the form closes once its write is confirmed, which its screen reports in a toast."""
        self.request: WriteRequest | None = None
        self._result: Action | None = None
        self._open: Action | None = None
        """The action of unknown outcome, if any."""

    # Hooks for subclasses

    def make_rows(self) -> Sequence[Widget]:
        return [
            row.control(row.key, row.label, row.hint, value=self._initial.get(row.key, ""), placeholder=row.placeholder)
            for row in self.FIELDS
        ]

    @abstractmethod
    def build(self, values: Values) -> Built:
        """Return the request for these values, and a problem for each unreadable value."""

    def problems(self) -> tuple[FieldProblem, ...]:
        request, unread = self.build(self.values)
        return (*unread, *problems(request))

    def requests(self, values: Values) -> tuple[WriteRequest, ...]:
        """Return all requests for these values; none while there are problems."""
        request, unread = self.build(values)
        return () if unread else (request,)

    @abstractmethod
    def consequence(self, request: WriteRequest) -> str:
        """Describe the effect of sending in a sentence."""

    def explanation(self, request: WriteRequest) -> Content:
        """The text above the request in the preview."""
        return Content(safe_text(self.consequence(request)))

    def placeholders(self) -> dict[str, str]:
        values = self.values
        return {"repository": values.get("repository", ""), "branch": values.get("branch_name", "")}

    @property
    def again(self) -> bool:
        """Whether the user knows about an earlier identical write and wants another."""
        return False

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The runs that were started or continued; none if the outcome is unknown."""
        action = self._result
        if action is None or action.state != "confirmed" or action.kind not in {"run.start", "run.continue"}:
            return ()
        return (action.result_id,) if action.result_id is not None else ()

    def actions_changed(self) -> None:
        """Respond to a change of the ledger or of runs: an unknown outcome may be known now."""
        self._note_draft()

    def field_changed(self, _key: str) -> bool:
        """Respond to a field's new value; return whether the user typed it."""
        return True

    def fill(self, values: Values) -> None:
        """Replace all values; fields without one are emptied."""
        for key, field in self.fields.items():
            field.fill(values.get(key, ""))
        self._last_typed = self._focus

    def note(self, text: str, tone: Tone = "quiet") -> None:
        if self.is_mounted and self.is_running:
            self.dialog.note(text, tone)

    async def send(self, request: WriteRequest) -> None:
        await self.form_draft.mark_sent(self.engine.clock())
        command_line = self.engine.settings.command_line
        try:
            action = await self.engine.actions.submit(request, again=self.again)
        except BlockedError as refused:
            await self.form_draft.mark_sent(None)
            self._open = refused.existing if refused.existing.state == "unknown" else None
            self.show_outcome(blocked_outcome(refused.existing, self.engine.clock(), command_line))
        except ActionRefusedError as refused:
            await self.back_to_fields(str(refused))
        except RunwardenError as error:
            meaning = (
                f"Check the ledger before you send this again: {command_line} actions list. A write listed there as "
                "sending or unknown may have taken effect; one that is not listed was not sent."
            )
            self.show_outcome(OutcomeText("failed", "Sending failed", (), (str(error), meaning)))
        else:
            if action.state == "confirmed":
                await self.form_draft.delete()
                self._result = action
            elif action.state == "unknown":
                self._result = self._open = action
            if self._result is None:
                await self.back_to_fields(why_not_done(action))
            elif action.state == "confirmed" and self.closes_when_done:
                self.dismiss(action)
            else:
                self.show_outcome(settled_outcome(action, command_line))

    async def back_to_fields(self, reason: str) -> None:
        await self.form_draft.mark_sent(None)
        self.enter("editing")
        self.dialog.banner(reason)

    # Opening and closing

    def compose(self) -> ComposeResult:
        # Focused from the first frame: text typed before the draft loads belongs in the same field.
        first = self._to_focus().key
        self.AUTO_FOCUS = f"#field-{first} Input, #field-{first} TextArea"  # type: ignore[misc]  # Textual declares it a class variable, and reads the instance's
        self.dialog = FormDialog(self.TITLE_TEXT, self._rows, self.BUTTONS, mark=mark_of(self.engine))
        yield self.dialog

    on_event = guarded_event

    async def on_mount(self) -> None:
        self._unsubscribe = self.engine.events.subscribe(self._engine_changed)
        self._ticking = self.set_interval(1, self.beat, pause=True)
        self.set_interval(0.5, self.form_draft.flush)
        values = self.beginning
        draft = await self.form_draft.restore()
        outcome, sent = await self._outcome_of(draft)
        if draft is not None and outcome == "done":
            await self.form_draft.delete()
            self.note(*about_draft(outcome, sent, ago(draft.sent_at or draft.saved_at, self.engine.clock())))
        elif draft is not None and self._is_ready and values is not None:
            self._other = draft.values
        elif draft is not None:
            self._other = self.form_draft.fresh
            self._is_fresh = False
            values = draft.values
        if values is not None:
            self.fill(values)
        self.enter("editing")
        self._offer_repositories()
        if self._is_ready and self._is_fresh:
            after_refresh(self, self.action_forward)

    async def on_unmount(self) -> None:
        """Store the draft, however the form was closed."""
        self._unsubscribe()
        await self.form_draft.flush()

    def _engine_changed(self, event: Event) -> None:
        if isinstance(event, ActionChanged | FilesChangedElsewhere | RunsChanged):
            self.actions_changed()

    def enter(self, phase: FormPhase) -> None:
        self.phase = phase
        hidden = {button.name for button in self.BUTTONS if not self.check_action(*parse(button.action)[1:])}
        self.dialog.enter(phase, frozenset(hidden | {"swap" if self._is_fresh else "draft"}))
        self._ticking.pause()
        match phase:
            case "editing":
                self._to_focus().take_focus()
                self._note_draft()
            case "preview":
                # Focus the preview, never the dangerous button.
                self.query_one(RequestPreview).focus()
            case "sending":
                self.set_focus(None)
                self._began = self.engine.clock()
                if self.SHOWS_TIME:
                    self._ticking.resume()
                    self.beat()
            case "refused":
                self.query_one("#verb-back").focus()
            case "outcome":
                self.query_one("#verb-open" if len(self.run_ids) == 1 else "#verb-done").focus()
        if phase in {"preview", "refused", "outcome"}:
            self._second_press.forget()
            after_refresh(self, self._second_press.start_pause)
        self.refresh_bindings()

    def beat(self) -> None:
        """Show how long the answer has been awaited; called once a second."""
        waited = span((self.engine.clock() - self._began).total_seconds())
        self.dialog.sending(f"Sending…  {waited} of at most {span(self.engine.profile.poll.deadline_s)}")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "next_field":
            return isinstance(self.focused, Input)
        buttons = [button for button in self.BUTTONS if parse(button.action)[1:] == (action, parameters)]
        is_now = any(self.phase in button.phases for button in buttons)
        return not buttons or (is_now and self.is_possible(buttons[0].action))

    def is_possible(self, action: str) -> bool:
        match action:
            case "forward":
                return self.phase != "preview" or not self.engine.actions.read_only
            case "swap_draft":
                return self._other is not None
            case "edit":
                return self.instructions is not None
            case "template":
                return self.instructions is not None and bool(self.engine.settings.templates)
            case "resolve":
                return self._open is not None
            case "open_run":
                return len(self.run_ids) == 1
            case "follow":
                return bool(self.run_ids)
        return True

    def action_forward(self) -> None:
        """Preview the exact request, unless there are problems; then send it."""
        if self.phase == "editing":
            # Show all problems, including those of untouched fields, and focus the first field that has one.
            for field in self.fields.values():
                field.insist()
            if wrong := self._complain():
                self.fields.get(wrong[0].field, next(iter(self.fields.values()))).take_focus()
            else:
                self.request, _ = self.build(self.values)
                body = json.dumps(json.loads(as_json(self.request)), indent=2, ensure_ascii=False)
                self.query_one(RequestPreview).show(
                    "POST",
                    safe_text(f"{self.engine.profile.base_url}{self.request.path}"),
                    safe_block(body, limit=100_000),
                    self.explanation(self.request),
                )
                self.enter("preview")
        elif self.phase != "sending" and self.request is not None and not self.engine.actions.read_only:
            if not self._second_press.press():
                self.dialog.did("Check it, then press ^s again to send.", "warn")
                return
            # The phase changes before the first await, so a second key finds nothing to send.
            self.enter("sending")
            self.run_worker(self.send(self.request), group="send")

    def action_back(self) -> None:
        if self.phase in {"editing", "outcome"}:
            self.dismiss(self._result if self.phase == "outcome" else None)
        else:
            self.enter("editing")

    def action_swap_draft(self) -> None:
        if (other := self._other) is not None:
            self._other = self.values
            self._is_fresh = not self._is_fresh
            self.note("Press ^n for the previous text.")
            self.fill(other)
            self.enter("editing")

    def action_edit(self) -> None:
        if (field := self.instructions) is None:
            return
        text, problem = from_editor(self.app, field.value)
        if problem:
            self.note(problem, "warn")
        elif text != field.value:
            field.fill(text)
        field.take_focus()

    @work
    async def action_template(self) -> None:
        choices = []
        for entry in self.engine.settings.templates:
            beginning = safe_text(" ".join(entry.instructions.split()), limit=200)
            text = Content.assemble((safe_text(entry.name, limit=60), "bold"), "\n   ", (beginning, "$foreground 70%"))
            choices.append((text, entry.instructions))
        template = await self.app.push_screen_wait(ChoiceSheet("Templates", choices))
        if template is None or self.instructions is None:
            return
        filled, missing = filled_in(template, self.placeholders())
        self.instructions.insert(filled)
        if missing:
            names = ", ".join(f"{{{name}}}" for name in missing)
            self.note(f"Unknown here, please fill in: {names}", "warn")

    def action_resolve(self) -> None:
        if self._open is not None:
            self.app.push_screen(ResolveForm(self.engine, self._open), self.resolved)

    def resolved(self, action: Action | None) -> None:
        """Respond to a resolved action: it no longer blocks the form, or the form's own write is settled."""
        if action is None:
            return
        self._open = None
        if self._result is None:
            self.enter("editing")
        else:
            self.dismiss(action)

    def action_copy_request(self, language: Literal["curl", "command"]) -> None:
        profile = self.engine.profile
        command_line = self.engine.settings.command_line
        name = "A curl command (token from RUNWARDEN_TOKEN)"
        text_of = partial(as_curl, profile.base_url)
        if language == "command":
            name = "A runwarden command"
            text_of = partial(as_command, command_line, profile.name)
        try:
            text = "\n".join(map(text_of, self.requests(self.values)))
        except UnfaithfulError as error:
            self.notify(str(error), severity="warning", markup=False)
        else:
            self.dialog.did(f"{name} {copy_out(self.app, text)}.")

    def action_open_run(self) -> None:
        app = self.app
        run_id = self.run_ids[0]
        self.dismiss(self._result)
        app.post_message(OpenRun(run_id, self.engine.profile.name))

    def action_follow(self) -> None:
        self.app.post_message(FollowRun(self.run_ids, self.engine.profile.name))

    @property
    def values(self) -> Values:
        return {field.key: self.fields[field.key].value for field in self.FIELDS}

    @on(FormField.Left)
    def _complain(self) -> tuple[FieldProblem, ...]:
        """Show the problems of touched fields below them; return all problems."""
        problems = self.problems()
        by_field = {problem.field: problem.message for problem in reversed(problems)}
        for key, field in self.fields.items():
            field.complain(by_field.get(key) if field.touched else None)
        return problems

    def _to_focus(self) -> FormField:
        """The last edited field; at first the field that most needs a value, or the instructions."""
        if self._last_typed in self.fields:
            return self.fields[self._last_typed]
        fields = self.fields
        wrong = {problem.field for problem in self.problems()}
        first = self.instructions or next(iter(fields.values()))
        return next((field for key, field in fields.items() if key in wrong), first)

    def action_next_field(self) -> None:
        self.focus_next()

    @on(FormField.Changed)
    def take_change(self, event: FormField.Changed) -> None:
        if not self.field_changed(event.field):
            return
        self._last_typed = event.field
        if event.field == "repository":
            self._offer_branches()
        self.dialog.banner(None)
        self._complain()
        self.form_draft.set_values(self.values)

    @work(group="offer")
    async def _offer_repositories(self) -> None:
        # Suggestions are optional, and the screen behind reports a broken cache.
        with suppress(StorageError):
            if isinstance(field := self.fields.get("repository"), ChoiceField):
                field.offer(await self.engine.cache.repositories())
        self._offer_branches()

    @work(group="offer branches", exclusive=True)
    async def _offer_branches(self) -> None:
        with suppress(StorageError):
            if isinstance(field := self.fields.get("branch_name"), ChoiceField):
                # An agent's repository is named without its platform.
                label = self.values["repository"].strip()
                seen = RunFilter(repositories=(label, f"gitlab:{label}"))
                field.offer(await self.engine.cache.branches(seen) if label else ())

    @work(group="note", exclusive=True)
    async def _note_draft(self) -> None:
        """Note why sending is impossible; otherwise where the text comes from, and its outcome."""
        if self.phase != "editing":
            return
        draft = self.form_draft.current
        now = self.engine.clock()
        outcome, sent = await self._outcome_of(draft)
        if self.engine.actions.read_only:
            self.note("This profile is read-only: prepare and preview, but nothing is sent.", "warn")
        elif self.engine.token_problem is not None:
            self.note(str(self.engine.token_problem), "warn")
        elif draft is not None and outcome != self._noted and self._other is not None:
            if self._is_fresh and outcome == "not_sent":
                self.note(f"A draft from {ago(draft.saved_at, now)} is kept: press ^n to restore it.")
            else:
                self.note(*about_draft(outcome, sent, ago(draft.sent_at or draft.saved_at, now)))
        self._noted = outcome

    async def _outcome_of(self, draft: Draft | None) -> tuple[DraftOutcome, Action | None]:
        """The outcome and the action of a draft whose sending had begun."""
        if draft is None or draft.sent_at is None or not (requests := self.requests(draft.values)):
            return "not_sent", None
        bodies = {as_json(request) for request in requests}
        since = ActionFilter({request.kind for request in requests}, since=draft.sent_at)
        try:
            newest = await self.engine.ledger.actions(since, limit=200)
        except StorageError:
            return "open", None
        sent = [action for action in newest if action.body_json in bodies]
        if (still_open := next((action for action in sent if action.is_open), None)) is not None:
            return "open", still_open
        done = [action for action in sent if action.state == "confirmed"]
        if {action.body_json for action in done} == bodies:
            return "done", done[0]
        return "not_sent", None

    def show_outcome(self, outcome: OutcomeText) -> None:
        """Show the outcome; without a result nothing was sent, and escape returns to the fields."""
        self.query_one(OutcomePage).show(outcome)
        self.enter("refused" if self._result is None else "outcome")
