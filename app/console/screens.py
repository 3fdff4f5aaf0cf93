"""The screens of one session: each is imported and made when it is first shown."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from app.console.base import ALL, BaseScreen
from app.console.session import Session

if TYPE_CHECKING:
    from app.profiles.engines import ProfileEngines

NEED_ENGINE: Final = frozenset({"organizations", "insights", "activity"})
"""Tabs whose screen is given the engine: they cannot be shown before it is open."""


MODULES: Final = {
    "activity": "actions.screen",
    "all profiles": "profiles.screen_all_profiles",
}
"""Where a tab's screen is, if not in the room of its name."""


def screen_type(tab: str) -> type[BaseScreen]:
    """Import a tab's screen class: `HealthScreen` of `app.health.screen` for `health`."""
    module = import_module(f"app.{MODULES.get(tab, f'{tab}.screen')}")
    kind: type[BaseScreen] = getattr(module, f"{tab.title().replace(' ', '')}Screen")
    return kind


def make_screen(tab: str, session: Session, profile_engines: "ProfileEngines | None") -> BaseScreen:
    """Make a tab's screen, or that of all profiles."""
    needs: Any = profile_engines if tab == ALL else session.engine
    if tab not in {ALL, *NEED_ENGINE}:
        return screen_type(tab)(session)
    if needs is None:
        raise RuntimeError(f"The {tab} screen cannot be made yet.")
    return screen_type(tab)(session, needs)  # type: ignore[call-arg]  # it has one argument more than its base
