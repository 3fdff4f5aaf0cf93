"""The screens of one session: each is imported and made when it is first shown."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from textual.screen import Screen

from app.console.base.screen import INBOX, OVERVIEW
from app.console.session import Session

if TYPE_CHECKING:
    from app.console.profiles.engines import ProfileEngines
    from app.engine import Engine

Screens = dict[str, Callable[[], Screen[Any]]]


def screens_of(session: Session, profile_engines: "ProfileEngines | None") -> Screens:
    """Return the screens' constructors by name; without `profile_engines` there is no profile overview."""
    return {
        **{name: partial(make, session) for name, make in _SCREENS.items()},
        OVERVIEW: partial(_overview, session, profile_engines),
    }


def _runs(session: Session) -> Screen[Any]:
    from app.console.runs.screen import RunsScreen

    return RunsScreen(session)


def _health(session: Session) -> Screen[Any]:
    from app.console.health.screen import HealthScreen

    return HealthScreen(session)


def _organizations(session: Session) -> Screen[Any]:
    from app.console.organizations.screen import OrganizationsScreen

    return OrganizationsScreen(session, _engine(session))


def _insights(session: Session) -> Screen[Any]:
    from app.console.insights.screen import InsightsScreen

    return InsightsScreen(session, _engine(session))


def _automations(session: Session) -> Screen[Any]:
    from app.console.automations.screen import AutomationsScreen

    return AutomationsScreen(session)


def _activity(session: Session) -> Screen[Any]:
    from app.console.activity.screen import ActivityScreen

    return ActivityScreen(session, _engine(session))


def _inbox(session: Session) -> Screen[Any]:
    from app.console.inbox.screen import InboxScreen

    return InboxScreen(session)


_SCREENS: Final[dict[str, Callable[[Session], Screen[Any]]]] = {
    "runs": _runs,
    "health": _health,
    "organizations": _organizations,
    "insights": _insights,
    "automations": _automations,
    "activity": _activity,
    INBOX: _inbox,
}


def screen_types() -> dict[str, type[Screen[Any]]]:
    """Import and return every tab's screen class."""
    from app.console.activity.screen import ActivityScreen
    from app.console.automations.screen import AutomationsScreen
    from app.console.health.screen import HealthScreen
    from app.console.inbox.screen import InboxScreen
    from app.console.insights.screen import InsightsScreen
    from app.console.organizations.screen import OrganizationsScreen
    from app.console.runs.screen import RunsScreen

    kinds = (
        RunsScreen,
        HealthScreen,
        OrganizationsScreen,
        InsightsScreen,
        AutomationsScreen,
        ActivityScreen,
        InboxScreen,
    )
    return {kind.TAB: kind for kind in kinds}


def _overview(session: Session, profile_engines: "ProfileEngines | None") -> Screen[Any]:
    from app.console.profiles.screen import ProfilesScreen

    if profile_engines is None:
        raise RuntimeError("Without profile engines there is one profile.")
    return ProfilesScreen(session, profile_engines)


def _engine(session: Session) -> "Engine":
    if session.engine is None:
        raise RuntimeError("No screen but Runs is entered before the engine is open.")
    return session.engine
