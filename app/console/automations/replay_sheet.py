"""The sheet that replays a rule over the cached history, on a thread of its own that ends with the sheet."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from app.automations.replay import SHOWN, WORDS, Replayed, replay
from app.console.automations.sheets import BOX
from app.console.sheets import Sheet
from app.engine import Engine
from app.rules.rule import Rule
from app.text import safe_text
from app.times import stamp
from widgets.automations.formatting import OUTCOMES, journal_lines
from widgets.badges import STYLES

if TYPE_CHECKING:
    from collections.abc import Callable

HISTORY: Final = timedelta(days=30)
BEAT_S: Final = 0.2
"""How often the progress is checked."""
BAR: Final = 30


class ReplayJob:
    """One replay, on a thread and an event loop of its own."""

    def __init__(self, engine: Engine, rule: Rule, now: datetime) -> None:
        # A rule that is off is replayed as if it were on, so that it can be tried before it is switched on.
        self._rule = replace(rule, is_on=True)
        self._engine = engine
        self._now = now
        self._reached = self._since = now - HISTORY
        self._stop: Callable[[], object] = lambda: None
        self._is_stopped = False

    @property
    def share(self) -> float:
        """How much of the history was replayed, from 0 to 1."""
        return (self._reached - self._since) / HISTORY

    async def result(self) -> Replayed | None:
        """What the rule would have done; None: the replay was stopped.

        Raises:
            StorageError: The cache cannot be read.
        """
        return await asyncio.to_thread(lambda: asyncio.run(self._work()))

    def stop(self) -> None:
        """Stop the replay."""
        self._is_stopped = True
        with suppress(RuntimeError):  # Its loop has just ended.
            self._stop()

    async def _work(self) -> Replayed | None:
        loop = asyncio.get_running_loop()
        found = asyncio.create_task(replay(self._engine, (self._rule,), self._since, self._now, self._progressed))
        self._stop = lambda: loop.call_soon_threadsafe(found.cancel)
        if self._is_stopped:
            return None
        try:
            return (await found)[self._rule.name]
        except asyncio.CancelledError:
            return None
        finally:
            self._stop = lambda: None

    def _progressed(self, moment: datetime) -> None:
        self._reached = moment


class ReplaySheet(Sheet[None]):
    """Shows the progress, then how often and when the rule would have acted."""

    LEAVE = "dismiss(None)"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss(None)", "close", key_display="esc", id="replay.close"),
        Binding("j,down", "scroll(1)", "down", show=False),
        Binding("k,up", "scroll(-1)", "up", show=False),
    ]
    CSS = BOX.format(name="ReplaySheet") + (
        "ReplaySheet Static { height: auto; } ReplaySheet #replay-list { margin-top: 1; }"
        "ReplaySheet VerticalScroll { height: auto; max-height: 100%; scrollbar-size-vertical: 1;"
        " scrollbar-background: $surface; scrollbar-color: $panel; }"
    )

    def __init__(self, engine: Engine, rule: Rule) -> None:
        super().__init__()
        self._name = safe_text(rule.name, limit=80)
        self._engine = engine
        self._job = ReplayJob(engine, rule, engine.clock())
        self._is_done = False

    def compose(self) -> ComposeResult:
        """Compose the count and the list."""
        with Vertical() as box:
            box.border_title = Content(f"What {self._name} would have done in {HISTORY.days} days")
            box.border_subtitle = "esc closes"
            with VerticalScroll():
                yield Static(id="replay-count", markup=False)
                yield Static(id="replay-list", markup=False)

    def on_mount(self) -> None:
        """Start the replay."""
        self.query_one(VerticalScroll).focus()
        self.set_interval(BEAT_S, self._tick)
        self._tick()
        self.run_worker(self._replay())

    def on_unmount(self) -> None:
        """Stop the replay."""
        self._job.stop()

    def action_scroll(self, lines: int) -> None:
        """Scroll by lines."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def _tick(self) -> None:
        if not self._is_done:
            share = self._job.share
            bar = f"{'▰' * int(share * BAR):▱<{BAR}}"
            self._count(Content.assemble((bar, STYLES["busy"]), f" {share:.0%}  esc gives it up"))

    async def _replay(self) -> None:
        found = await self._job.result()
        self._is_done = True
        if found is None:
            return
        now = self._engine.clock()
        self._count(Content.assemble(_counts(found), (_completeness(found, now - HISTORY), STYLES["quiet"])))
        self.query_one("#replay-list", Static).update(
            journal_lines(found.newest, now, self.query_one("#replay-list").size.width)
        )

    def _count(self, content: Content) -> None:
        self.query_one("#replay-count", Static).update(content)


def _counts(found: Replayed) -> Content:
    total = sum(found.counts.values())
    if not total:
        return Content("Nothing would have set it off.")
    parts = [
        Content.assemble((f"{badge.glyph} {found.counts[outcome]:,} {WORDS.get(outcome, badge.word)}", badge.style))
        for outcome, badge in OUTCOMES.items()
        if outcome in found.counts
    ]
    times = "once" if total == 1 else f"{total:,} times"
    newest = f"The newest {SHOWN} of them:" if total > SHOWN else ""
    return Content.assemble((f"Set off {times}: ", "bold"), Content("   ").join(parts), f"\n{newest}" if newest else "")


def _completeness(found: Replayed, since: datetime) -> str:
    """A sentence about how far back the cached history is complete; empty if it covers the whole time."""
    if found.held_since is None:
        return "\nHow much of that time is held here is not known: there may have been more."
    return f"\nNothing is missing since {stamp(found.held_since)}." if found.held_since > since else ""
