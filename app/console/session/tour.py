"""The tour: six steps in a line above the keys; they advance by themselves and can be left at any time."""

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace
from textual.content import Content
from textual.signal import Signal
from textual.widgets import Static

from app.console.session.user_preferences import keep, read
from storage.records import ActionFilter
from widgets.kit.badges import STYLES

if TYPE_CHECKING:
    from app.engine.engine import Engine


class TourStep(Struct, frozen=True):
    """A step, shown until the next screen is reached."""

    text: str
    until: str = ""
    """A tab's name; empty: only f9 leads on."""
    keys: str = "f9 next, f10 leave"


STEPS: Final = (
    TourStep("A team's month of runs, made up, and real agents at work.", keys="f9 review, f10 leave"),
    TourStep("What it did: f3 its review, f4 its changes, f5 its log. esc: back.", "runs"),
    TourStep("Start one of your own: n, a sentence, ctrl+s twice. Next, the code hosts: 2.", "health"),
    TourStep("GitLab goes away now and then; its incidents lead to what failed. Next, a lost answer: U.", "activity"),
    TourStep("It may have arrived, and is never sent twice: v to resolve it. Next, the inbox: 7.", "inbox"),
    TourStep(
        "Failed runs, and what automations (5) ask you. Press : to find any action or run. The end.",
        keys="f10 close",
    ),
)


class Tour:
    """The progress of the tour, kept in the user's preferences."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.changed: Signal[None] = Signal(session.app, "tour changed")
        self._at = read(session.settings).tour if session.settings.console.tour else len(STEPS)

    @property
    def is_on(self) -> bool:
        """Whether a step is shown."""
        return self._at < len(STEPS)

    @property
    def words(self) -> Content | None:
        """The step's text, or None."""
        if not self.is_on:
            return None
        step = STEPS[self._at]
        count = f" {self._at + 1}/{len(STEPS)} "
        return Content.assemble((count, "bold reverse"), f" {step.text}", (f"  {step.keys}", STYLES["quiet"]))

    def reached(self, screen: str) -> None:
        """Advance if this is the screen that the step leads to."""
        if self.is_on and STEPS[self._at].until == screen:
            self._go_to(self._at + 1)

    async def next(self) -> str | None:
        """Advance to the next step; after the last one the tour ends. Return the run that the first step opens."""
        run_id = None if self._at else await self._executed_run()
        if self._at or run_id:
            self._go_to(self._at + 1)
        else:
            self._session.notify("The first review is being written: f9 again in a few seconds.")
        return run_id

    def leave(self) -> None:
        """End the tour for good."""
        self._go_to(len(STEPS))

    async def _executed_run(self) -> str | None:
        """The first completed run that was started here: the demo's made-up runs have neither review nor changes."""
        engine: Engine = await self._session.opened()
        started = await engine.ledger.actions(ActionFilter({"run.start"}, {"confirmed"}))
        for action in reversed(started):
            run = await engine.cache.detail(action.result_id or "")
            if run is not None and run.run.status == "completed":
                return run.run.run_id
        return None

    def _go_to(self, step: int) -> None:
        self._at = step
        self._session.start(partial(keep, self._session.settings, lambda known: replace(known, tour=step)))
        self.changed.publish(None)


class TourStrip(Static):
    """The step in one line, or in two, which take the keys' as well; hidden without one."""

    DEFAULT_CSS = "TourStrip { height: auto; max-height: 2; padding: 0 1; background: $panel; }"

    def __init__(self) -> None:
        super().__init__(markup=False)
        self.display = False

    def show(self, words: Content | None) -> None:
        """Show a step; None: hide it."""
        self.display = words is not None
        if words is not None:
            self.update(words)

    async def on_click(self) -> None:
        """Do what f9 does."""
        await self.run_action("screen.tour('next')")
