"""The ways out of the screen: bell, desktop, command. What fails is said, and nothing waits for it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from shutil import which

from app.config import NotifySettings
from app.notify import programs
from app.notify.news import News
from app.notify.terminal import notification

NO_DESKTOP = (
    "There is no way to this desktop: the terminal is not known to show notifications, and notify-send is not"
    " installed. Install it (libnotify), use notify.command, or set notify.desktop = false."
)


@dataclass(frozen=True, slots=True)
class Channels:
    """The ways that one person chose."""

    settings: NotifySettings
    profile: str
    env: Mapping[str, str]
    ring_bell: Callable[[], None]
    write: Callable[[str], None]
    """Writes to the terminal as it stands."""

    async def deliver(self, news: Sequence[News]) -> tuple[str, ...]:
        """Tells these; what could not be told and why, each once."""
        if news and self.settings.bell:
            self.ring_bell()
        troubles: list[str | None] = []
        for one in news:
            if self.settings.desktop:
                troubles.append(await self._desktop(one))
            if self.settings.command:
                troubles.append(await programs.run(programs.filled(self.settings.command, one, self.profile)))
        return tuple(dict.fromkeys(trouble for trouble in troubles if trouble is not None))

    async def _desktop(self, news: News) -> str | None:
        sequence = notification(news.title, news.body, self.env)
        if sequence is not None:
            self.write(sequence)
            return None
        if which("notify-send", path=self.env.get("PATH")) is None:
            return NO_DESKTOP
        return await programs.run(programs.notify_send(news))
