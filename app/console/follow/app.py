"""The part of the app that is about following: pinned runs for every screen, toasts, and what leaves the screen."""

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.reactive import reactive

from app.console.terminal.app import TerminalApp
from app.events import Event
from storage.errors import StorageError

if TYPE_CHECKING:
    from app.console.follow.follow import Follow
    from app.engine import Engine
    from app.notify.notifications import Notification
    from storage.records.following import PinnedRun

TOAST_S = {"information": 6.0, "warning": 10.0, "error": 15.0}
"""How long a toast stays; a click takes it away."""


class FollowingApp(TerminalApp):
    """An app that tells what changed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("F", "followed", "followed runs", show=False, tooltip="Those in the strip", id="app.followed"),
    ]

    pins: "reactive[tuple[PinnedRun, ...]]" = reactive((), init=False, repaint=False)
    """The followed runs, as they were read last."""

    follow: "Follow | None" = None
    """None: the engine is not open yet."""

    def begin_following(self, engine: "Engine") -> None:
        """From now on it follows and tells."""
        from app.console.follow.follow import Follow, Ways

        def show(pins: "tuple[PinnedRun, ...]") -> None:
            # One that was left may still be reading.
            if self.follow is follow:
                self.pins = pins

        ways = Ways(
            start=self.run_worker,
            show=show,
            tell=self._tell,
            say=lambda text: self.say(text, severity="warning"),
            ring_bell=self.bell,
            write=self._write,
            failed=self.storage_failed,
        )
        self.follow = follow = Follow.on(engine, ways)
        follow.look()

    def end_following(self) -> None:
        """Follows nothing, until it begins again."""
        self.follow, self.pins = None, ()

    def heard(self, event: Event) -> None:
        """The engine's bell rang."""
        if self.follow is not None:
            self.follow.rang(event)

    def storage_failed(self, message: str) -> None:
        """Our own files fail."""
        raise NotImplementedError

    def open_run(self, run_id: str) -> None:
        """One run on the whole screen, over whatever is there."""
        from app.console.runs.run_screen import RunScreen

        if self.follow is not None:
            self.push_screen(RunScreen(run_id))

    async def follow_run(self, run_id: str) -> None:
        """Follows a run to its end, or lets it go."""
        if self.follow is None:
            self.say(self.not_open)
            return
        try:
            is_followed = await self.follow.toggle(run_id)
        except StorageError as error:
            self.storage_failed(str(error))
            return
        row = next((pinned.row for pinned in self.follow.pins if pinned.run_id == run_id), None)
        if not is_followed:
            self.say("Not followed any more.")
        elif row is not None and row.is_final:
            self.say("It has ended; followed for a day, in case it is continued.")
        else:
            self.say("Followed to its end, also after a restart. F lists what is followed.")

    def action_followed(self) -> None:
        """Lists the followed runs."""
        from app.console.follow.list_screen import FollowList

        if self.follow is not None and not isinstance(self.screen, FollowList):
            self.push_screen(FollowList())

    def _tell(self, news: "Notification") -> None:
        self.notify(news.body, title=news.title, severity=news.level, timeout=TOAST_S[news.level], markup=False)

    def _write(self, sequence: str) -> None:
        if self._terminal is not None:
            self._terminal.write(sequence)
