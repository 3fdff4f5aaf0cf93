"""The Inbox tab: items that need attention. Opening it changes nothing."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, time, timedelta
from typing import ClassVar, Final

from textual import on, work
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from app.console.base import INBOX, TABS_CSS, BaseScreen
from app.console.session import FIRST_UNKNOWN, GoToTab, OpenRun, Session, mark_of
from app.console.sheets import ChoiceSheet
from app.console.troubles import UNREADABLE
from app.engine.engine import Engine
from app.engine.text import plural, safe_text
from app.runs.screen_actions import PARTS_OF_A_RUN, show_many, using_engine
from storage.records.inbox import RETRIED, InboxItem
from widgets.forms.facts import FactPane, TableAndFacts
from widgets.frame import Notice
from widgets.inbox import COLUMNS, MAX_RUNS, SEVERITY_TONES, InboxRow, when
from widgets.kit import hidden
from widgets.kit.badges import STYLES
from widgets.kit.line_table import LineTable
from widgets.kit.line_text import SteadyText

READING: Final = Notice("◌", "Reading the inbox…", tone="busy")
NOT_ASKED: Final = Notice("◌", "Nothing is known yet", ("The service has not answered since this profile was set up.",))
NOTHING: Final = Notice(
    "✓",
    "The inbox is empty",
    (
        (
            "Failed and stuck runs, unhealthy code hosts, unknown outcomes, approvals and paused automations"
            " appear here until you mark them as done."
        ),
        "Press u to undo your last change.",
    ),
    "good",
)
MORNING: Final = time(8)
TABS_OF: Final = {"host": "health", "unknown": "activity", "paused": "automations", "limited": "automations"}
"""The tabs of subjects that are not runs."""


class InboxScreen(BaseScreen):
    """The items by severity and age."""

    TAB = INBOX
    CSS_PATH = TABS_CSS
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c", "answer", "answer", tooltip="Answer the agent's question", id="run.continue"),
        Binding("T", "retry", "retry failed", tooltip="Retry all failed runs of the item", id="inbox.retry"),
        Binding("e", "done", "done", tooltip="Mark as done, until a new event", id="inbox.done"),
        Binding("h", "snooze", "snooze", tooltip="Hide for a while, or until a new event", id="inbox.snooze"),
        Binding("m", "mute", "mute", tooltip="Hide permanently", id="inbox.mute"),
        Binding("u", "undo", "undo", tooltip="Undo the last change; press again for earlier ones", id="inbox.undo"),
        Binding("space", "mark", "mark", tooltip="Mark for an action on several", id="inbox.mark"),
        hidden("asterisk", "mark_all", "mark all", tooltip="Mark all, or none", id="inbox.mark_all"),
        hidden("escape", "clear", "clear marks", id="inbox.clear"),
        *PARTS_OF_A_RUN,
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._table = LineTable[InboxRow](session.clock(), COLUMNS)
        self._list = TableAndFacts(self._table, FactPane[InboxRow](), id="inbox")
        self.aging = (self._list,)
        self._marked: set[str] = set()
        self._gone: InboxItem | None = None
        """An item that disappeared under the cursor by itself, so that the next key must not hit its successor."""
        self._here = ""
        """The item under the cursor at the last update."""
        self._put_away: frozenset[str] = frozenset()
        """The items that the user just hid, after which the cursor may move on."""

    def compose_body(self) -> Iterable[Widget]:
        yield SteadyText(id="inbox-summary")
        yield self._list

    def on_mount(self) -> None:
        self.session.inbox.changed.subscribe(self, lambda _: self._show())
        self._table.focus()
        self._show()
        self.session.inbox.ask()

    def go_to(self, target: str) -> None:
        self._table.seek(target)

    @property
    def focused_run_id(self) -> str | None:
        if self._item:
            return next((entry.run_id for entry in self._item.entries if entry.run_id), None)
        return None

    @property
    def bookmark(self) -> str:
        return "" if self._item is None else self._item.key

    def trouble(self) -> Notice | None:
        if reason := self.session.vitals.state_trouble:
            return Notice(
                "✗", "Marks unknown: items cannot be changed, and those that are done are listed", (reason,), "bad"
            )
        return super().trouble()

    def show_trouble(self) -> None:
        """Update the banner and the text of the empty list, which may report the same problem."""
        super().show_trouble()
        if self.session.vitals.storage_trouble:
            self._table.notice = UNREADABLE
        elif self.session.inbox.items is None:
            self._table.notice = READING
        else:
            self._table.notice = NOTHING if self.session.vitals.now.known else NOT_ASKED

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in {"done", "snooze", "mute", "mark", "mark_all"} and self.is_mounted:
            return self._table.item is not None
        if action == "part":
            return self.focused_run_id is not None
        if action == "answer":
            return self._item is not None and self._item.kind == "question"
        if action == "retry":
            return bool(self._failed_ids()) and (not self.session.profile.read_only or None)
        if action == "undo":
            return self.session.inbox.can_undo
        return super().check_action(action, parameters)

    async def action_done(self) -> None:
        if (items := self._chosen()) and (inbox := self.session.inbox.inbox) is not None:
            await inbox.mark_done(items)
            self._say_put_away("Done", items)

    async def action_mute(self) -> None:
        if (items := self._chosen()) and (inbox := self.session.inbox.inbox) is not None:
            await inbox.mute(items)
            self._say_put_away("Muted", items)

    @work
    async def action_snooze(self) -> None:
        if not (items := self._chosen()):
            return
        now = self.session.clock()
        today = now.astimezone().date()
        hour = now + timedelta(hours=1)
        # Combining naive local times keeps the wall-clock hour, even when the clocks change in between.
        tomorrow = datetime.combine(today + timedelta(days=1), MORNING).astimezone()
        monday = datetime.combine(today + timedelta(days=7 - today.weekday()), MORNING).astimezone()
        choices = [
            (Content(f"an hour, until {hour.astimezone():%H:%M}"), hour),
            (Content(f"until tomorrow morning, {tomorrow:%a %H:%M}"), tomorrow),
            (Content(f"until Monday, {monday:%d %b %H:%M}"), monday),
        ]
        until = await self.app.push_screen_wait(ChoiceSheet("Snooze", choices))
        if until is not None and (inbox := self.session.inbox.inbox) is not None:
            await inbox.snooze(items, until)
            self._say_put_away("Snoozed", items)

    @using_engine("form")
    async def action_retry(self, engine: Engine) -> None:
        await show_many(self, engine, "retry", self._failed_ids())
        self.session.inbox.ask()

    @work
    async def action_answer(self) -> None:
        item, engine = self._item, self.session.engine
        detail = None if item is None or engine is None else await engine.cache.detail(item.entries[0].run_id)
        if item is None or engine is None or detail is None:
            self.session.notify(self.session.not_open)
            return
        if self._marked - {item.key}:
            self.session.notify(f"{plural(len(self._marked), 'item')} marked: one is answered at a time. esc unmarks.")
            return
        run = detail.run
        open_question = (await engine.cache.questions()).get(run.run_id)
        question = item.title if open_question is None else " ".join(open_question.question.split())
        answer: str | Message | None = ""
        if item.choices:
            choices: list[tuple[Content, str | Message]] = [
                *((Content(safe_text(choice, limit=200)), choice) for choice in item.choices),
                (Content("type another answer"), ""),
                (Content("open the run"), OpenRun(run.run_id)),
            ]
            sheet = ChoiceSheet(item.title, choices)
            sheet.mark = mark_of(engine)
            answer = await self.app.push_screen_wait(sheet)
        if isinstance(answer, Message):
            self.post_message(answer)
        if not isinstance(answer, str):
            return
        from app.actions.screen_writes import ContinueRunForm

        action = await self.app.push_screen_wait(ContinueRunForm(engine, run, question=question, instructions=answer))
        if action is None:
            return
        self.session.inbox.ask()
        if action.state == "confirmed":
            self.session.notify("Answered: the run continues.", opens=OpenRun(run.run_id))
        elif action.state == "unknown":
            warning = "Whether the answer arrived is unknown: see Activity."
            self.session.notify(warning, severity="warning", opens=GoToTab("activity", FIRST_UNKNOWN))
        else:
            reason = "" if action.error is None else f" {action.error.message}"
            self.session.notify(f"Not answered.{safe_text(reason)}", severity="error")

    async def action_undo(self) -> None:
        """Undo the last change, of this or another console."""
        if (inbox := self.session.inbox.inbox) is None:
            self.session.notify(self.session.not_open)
            return
        keys = await inbox.undo()
        self.session.inbox.ask()
        self.session.notify("Undone." if keys else "There is nothing to undo.")

    def action_mark(self) -> None:
        if (item := self._item) is not None:
            self._marked ^= {item.key}
            self._show()
            self._table.action_move(1)

    def action_mark_all(self) -> None:
        keys = {item.key for item in self._items}
        self._marked = set() if keys <= self._marked else keys
        self._show()

    def action_clear(self) -> None:
        self._marked = set()
        self._show()

    @on(LineTable.Highlighted)
    def forget_gone(self) -> None:
        if self._item is not None and self._item.key != self._here:
            self._gone = None

    @on(LineTable.Chosen)
    @work
    async def open_item(self) -> None:
        if (item := self._item) is None:
            return
        if item.kind == "question":
            self.action_answer()
            return
        if item.kind == "approval":
            self.post_message(GoToTab("automations", item.key))
            return
        runs = [entry for entry in item.entries if entry.run_id]
        if len(runs) > 1 or (runs and item.kind == "host"):
            now = self.session.clock()
            choices = list[tuple[Content, Message]]()
            for run in runs[:MAX_RUNS]:
                line = safe_text(f"{when(run.at, now):<9} {run.about}  {run.run_id}", limit=120)
                choices.append((Content(line), OpenRun(run.run_id)))
            if item.kind == "host":
                choices.append((Content("open its incidents in Health"), GoToTab("health", item.subject)))
            if item.kind == "stuck":
                choices.append((Content("list all stuck runs"), GoToTab("runs", "is:stuck")))
            if (lead := await self.app.push_screen_wait(ChoiceSheet("Open", choices))) is not None:
                self.post_message(lead)
        elif runs:
            self.post_message(OpenRun(runs[0].run_id))
        else:
            self.post_message(GoToTab(TABS_OF.get(item.kind, "automations"), item.subject))

    def _failed_ids(self) -> tuple[str, ...]:
        """The failed runs of the marked items, or of the one under the cursor."""
        keys = {"" if self._item is None else self._item.key}
        items = (item for item in self._items if item.key in (self._marked or keys) and item.kind in RETRIED)
        return tuple(run_id for item in items for run_id in item.run_ids)

    @property
    def _items(self) -> tuple[InboxItem, ...]:
        return self.session.inbox.items or ()

    @property
    def _item(self) -> InboxItem | None:
        row = self._table.item
        return None if row is None else row.item

    def _chosen(self) -> tuple[InboxItem, ...]:
        """The marked items or the one under the cursor, unless it moved there because another one disappeared."""
        if self.session.vitals.state_trouble:
            self.session.notify("Items cannot be changed: see Health (2).", severity="warning")
            return ()
        if marked := tuple(item for item in self._items if item.key in self._marked):
            return marked
        if (closed := self._gone) is not None:
            self._gone = None
            self.session.notify(f"No longer open: {closed.title}. Press again to act on the selected item.")
            return ()
        return () if self._item is None else (self._item,)

    def _say_put_away(self, verb: str, items: tuple[InboxItem, ...]) -> None:
        self._put_away = frozenset(item.key for item in items)
        self._marked -= self._put_away
        subject = items[0].title if len(items) == 1 else f"{len(items):,} items"
        self.session.notify(f"{verb}: {subject}. Press u to undo.")
        self.session.inbox.ask()

    def _show(self) -> None:
        items, before = self._items, self._item
        keys = {item.key for item in items}
        self._marked &= keys
        if before is not None and before.key not in keys | self._put_away:
            self._gone = before
        above = (None, *(item.severity for item in items))
        rows = zip(items, above, strict=False)
        self._list.show(tuple(InboxRow(item, item.key in self._marked, item.severity != last) for item, last in rows))
        self._here = "" if self._item is None else self._item.key
        self.show_trouble()
        counts = Counter(item.severity for item in items)
        parts = [(f"  {counts[name]:,} {name}", STYLES[tone]) for name, tone in SEVERITY_TONES.items() if counts[name]]
        marked = f"   ■ {len(self._marked):,} marked" if self._marked else ""
        summary = Content.assemble(f"{len(items):,} waiting", *parts, (marked, "$accent")) if items else Content()
        self.query_one("#inbox-summary", SteadyText).update(summary)
        self.refresh_bindings()
