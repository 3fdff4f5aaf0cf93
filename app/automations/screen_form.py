"""The form of a rule: its TOML, checked while you type, replayed on request and saved in the configuration."""

import asyncio
import re
from contextlib import suppress
from difflib import unified_diff
from importlib import resources
from typing import TYPE_CHECKING, ClassVar, Final

from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import TextArea

from app.actions.drafts import FormDraft
from app.actions.screen_fields import from_editor
from app.automations.screen_data import RulesFile, view_of
from app.automations.screen_sheets import ReplaySheet
from app.automations.sentence import sentence
from app.automations.tables import AutomationTables, read_rule
from app.console.feeds import CoalescedTask
from app.console.guard import guarded_event
from app.console.session import FIX_TOAST_S
from app.console.sheets import OVER_CSS, ChoiceSheet
from app.engine.engine import Engine
from app.engine.text import safe_block, safe_text
from app.engine.times import ago
from app.profiles import ConfigError
from widgets.automations import Mistake, RuleEditor, RuleView
from widgets.forms.dialog import FormButton, FormDialog, FormPhase, RequestPreview, bindings_of
from widgets.kit import SecondPress, after_refresh

if TYPE_CHECKING:
    from app.automations.rule import Rule

_WIDTHS: Final = [(0, "-narrow"), (110, "-wide")]
DRAFT_AFTER_S: Final = 0.5
ROOM_FOR_ALL: Final = 76
DISPENSABLE: Final = frozenset({"editor", "fresh"})
"""Buttons that narrower forms leave out; their keys remain."""
_ROUTE: Final = re.compile(r'notify = "(\w+)"')
_NEW: Final = """\
[[automations]]
name = ""
on = { run = "failed" }
do = { notify = "default" }
"""


class AutomationForm(ModalScreen[str | None]):
    """Closes with the rule's name once it is saved."""

    CSS_PATH = OVER_CSS
    HORIZONTAL_BREAKPOINTS = _WIDTHS
    VERBS: ClassVar[tuple[FormButton, ...]] = (
        FormButton("close", "Close", "esc", "back", ("editing",)),
        FormButton("back", "Back", "esc", "back", ("preview",)),
        FormButton("fresh", "Fresh", "^n", "fresh", ("editing",)),
        FormButton("editor", "Editor", "^e", "edit", ("editing",)),
        FormButton("template", "Recipe", "^t", "template", ("editing",)),
        FormButton("replay", "Replay", "^g", "replay", ("editing",)),
        FormButton("preview", "Preview", "^s", "forward", ("editing",), is_primary=True),
        FormButton("save", "Save", "^s", "forward", ("preview",), is_primary=True),
    )
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(VERBS)

    def __init__(self, engine: Engine, file: RulesFile, tables: AutomationTables, name: str | None) -> None:
        """Prepare; without a name it is a new rule. A name that the file does not have raises `ConfigError`."""
        super().__init__()
        self._engine = engine
        self._file = file
        self._tables = tables
        self._name = name
        self._original = _NEW if name is None else tables.table_text(name)
        fresh = {"table": self._original}
        self._draft = FormDraft(
            engine,
            f"automation:{name}" if name else "automation",
            fresh,
            # Shown by the app, since the form may already be closing.
            lambda text: self.app.notify(safe_text(text), severity="warning", markup=False, timeout=FIX_TOAST_S),
        )
        title = "New automation" if name is None else f"Automation: {safe_text(name, limit=60)}"
        self._editor = RuleEditor()
        self._dialog = FormDialog(title, [self._editor], self.VERBS, ("edit", "preview", "saved"))
        self._checking = CoalescedTask(self._check, self.run_worker)
        self._second_press = SecondPress()
        self._phase: FormPhase = "editing"
        self._rule: Rule | None = None
        """The rule as typed, or None if the text is not a rule."""

    def compose(self) -> ComposeResult:
        yield self._dialog

    on_event = guarded_event

    async def on_mount(self) -> None:
        draft = await self._draft.restore()
        self._editor.fill(self._original if draft is None else draft.values.get("table", self._original))
        self._enter("editing")
        if draft is not None:
            when = ago(draft.saved_at, self._engine.clock())
            self._dialog.note(f"Your draft, typed {when}; press ^n for the file's version.", "warn")
        else:
            self._dialog.note("Every key is in docs/use/automations.md; press ^t for a recipe.")
        if self._name is not None:
            # If the editor cannot be opened, the text is edited in the form.
            self.call_after_refresh(self._edit)

    async def on_unmount(self) -> None:
        """Store the draft, however the form is closed."""
        await self._draft.flush()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        del parameters
        if action in {"fresh", "edit", "template", "replay"}:
            return self._phase == "editing"
        if action in {"forward", "back"}:
            return self._phase != "sending"
        return True

    async def action_forward(self) -> None:
        if self._phase == "preview":
            if not self._second_press.press():
                self._dialog.did("Check it, then press ^s again to save.", "warn")
                return
            self._enter("sending")
            self._dialog.sending("Writing…")
            self.run_worker(self._save())
            return
        await self._check()
        if self._rule is None:
            self._dialog.note("Cannot be saved yet: see the errors next to the text.", "bad")
            self._editor.input.focus()
            return
        before = "" if self._name is None else self._original.strip()
        diff = list(unified_diff(before.splitlines(), self._editor.input.text.strip().splitlines(), lineterm="", n=100))
        if not diff[2:]:
            self._dialog.note("Nothing has changed.")
            return
        effect = Content("Only this table changes. A running bot reloads the file and acts on new events only.")
        self.query_one(RequestPreview).show(
            "WRITE", safe_text(str(self._tables.file)), safe_block("\n".join(diff[3:])), effect
        )
        self._dialog.note("")
        self._enter("preview")

    def action_back(self) -> None:
        if self._phase == "editing":
            self.dismiss(None)
        else:
            self._enter("editing")

    def action_fresh(self) -> None:
        self._editor.fill(self._original)
        self._editor.input.focus()
        self._dialog.note("Loaded from the file; press ctrl+z for your version.")

    def action_edit(self) -> None:
        """Open the text in the user's editor, which takes over the terminal."""
        if problem := self._edit():
            self._dialog.note(problem, "warn")

    def _edit(self) -> str:
        text, problem = from_editor(self.app, self._editor.input.text)
        if not problem and text != self._editor.input.text.removesuffix("\n"):
            self._editor.fill(text)
        self._editor.input.focus()
        return problem

    @work
    async def action_template(self) -> None:
        settings = self._file.settings
        now = self._engine.clock()
        routes = {route.name for route in settings.notify.routes}
        recipes = resources.files("app.automations").joinpath("recipes.toml").read_text("utf-8")
        # Routes that are not configured become `default`.
        recipes = _ROUTE.sub(lambda match: match[0] if match[1] in routes else 'notify = "default"', recipes)
        choices = list[tuple[Content, str]]()
        for part in recipes.split("[[automations]]")[1:]:
            table = f"[[automations]]{part.rstrip()}\n"
            with suppress(ConfigError):
                rule = read_rule(table, settings)
                choices.append((Content.assemble((rule.name, "bold"), f"\n   {sentence(rule, now)}"), table))
        text = await self.app.push_screen_wait(ChoiceSheet("Start from a recipe (ctrl+z to undo)", choices))
        if text is not None:
            self._editor.fill(text)
            self._editor.input.focus()

    async def action_replay(self) -> None:
        await self._check()
        if self._rule is not None:
            self.app.push_screen(ReplaySheet(self._engine, self._rule))

    @on(TextArea.Changed)
    def take_text(self) -> None:
        self._dialog.banner(None)
        self._draft.set_values({"table": self._editor.input.text})
        self._checking.ask()
        self.set_timer(DRAFT_AFTER_S, self._draft.flush)

    def _enter(self, phase: FormPhase) -> None:
        self._phase = phase
        self._dialog.enter(phase, frozenset() if self.size.width >= ROOM_FOR_ALL else DISPENSABLE)
        if phase == "editing":
            self._editor.input.focus()
        elif phase == "preview":
            # Focus the preview, never the dangerous button.
            self.query_one(RequestPreview).focus()
            self._second_press.forget()
            after_refresh(self, self._second_press.start_pause)
        self.refresh_bindings()

    async def _check(self) -> None:
        text = self._editor.input.text
        now = self._engine.clock()
        others = [name for name in self._tables.names if name != self._name]
        rule: Rule | None = None
        try:
            rule = await asyncio.to_thread(read_rule, text, self._file.settings, others)
        except ConfigError as error:
            key = (error.key or "").removeprefix("automations[1]").removeprefix(".")
            line = f"line {error.line}" if error.line is not None else ""
            place = safe_text(", ".join(filter(None, (line, key))))
            message = safe_text(error.message[:1].upper() + error.message[1:], limit=400)
            result: RuleView | Mistake = Mistake(place, message, safe_text(error.fix, limit=400))
        else:
            other_rules = [other for other in self._file.settings.automations if other.name != self._name]
            result = view_of(rule, None, [*other_rules, rule], now)
        if text == self._editor.input.text:  # Otherwise the newer text is being checked already.
            self._rule = rule
            self._editor.show(result, now)

    async def _save(self) -> None:
        rule, text = self._rule, self._editor.input.text
        try:
            self._file.use(await asyncio.to_thread(self._tables.save, self._name, text))
        except ConfigError as error:
            self._enter("editing")
            self._dialog.banner(str(error))
            return
        await self._draft.delete()
        self.dismiss(rule.name if rule is not None else None)
