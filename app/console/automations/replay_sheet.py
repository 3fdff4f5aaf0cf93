"""The sheet that replays a rule over the cached history, on a thread of its own that ends with the sheet."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ClassVar, Final

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

HISTORY: Final = timedelta(days=30)
BEAT_S: Final = 0.2
"""How often the progress is checked."""
BAR: Final = 30


class _StoppedError(Exception):
    """The sheet was closed."""


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
        # A rule that is off is replayed as if it were on, so that it can be tried before it is switched on.
        self._rule = replace(rule, is_on=True)
        self._engine = engine
        self._now = engine.clock()
        self._reached = self._now - HISTORY
        """The moment that the replay has come to."""
        self._is_done = False

    def compose(self) -> ComposeResult:
        """Compose the count and the list."""
        with Vertical() as box:
            box.border_title = Content(
                f"What {safe_text(self._rule.name, limit=80)} would have done in {HISTORY.days} days"
            )
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
        """Stop the replay, at its next moment."""
        self._is_done = True

    def action_scroll(self, lines: int) -> None:
        """Scroll by lines."""
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False)

    def _tick(self) -> None:
        if not self._is_done:
            share = (self._reached - self._now + HISTORY) / HISTORY
            bar = f"{'▰' * int(share * BAR):▱<{BAR}}"
            self._count(Content.assemble((bar, STYLES["busy"]), f" {share:.0%}  esc gives it up"))

    async def _replay(self) -> None:
        since = self._now - HISTORY

        def work() -> Replayed:
            found = replay(self._engine, (self._rule,), since, self._now, self._has_reached)
            return asyncio.run(found)[self._rule.name]

        try:
            # On a thread with an event loop of its own: a long history must not hold up the keys.
            found = await asyncio.to_thread(work)
        except _StoppedError:
            return
        self._is_done = True
        self._count(Content.assemble(_counts(found), (_completeness(found, since), STYLES["quiet"])))
        listed = self.query_one("#replay-list", Static)
        listed.update(journal_lines(found.newest, self._now, listed.size.width - 2))

    def _has_reached(self, moment: datetime) -> None:
        if self._is_done:
            raise _StoppedError
        self._reached = moment

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
