"""The rooms of one session: each is imported and made when it is entered first."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from app.console.base_screen import OVERVIEW
from app.console.session import Session

if TYPE_CHECKING:
    from app.console.profiles.engines import ProfileEngines
    from app.engine import Engine

Rooms = dict[str, Callable[[], Screen[Any]]]


def rooms_of(session: Session, profile_engines: "ProfileEngines | None") -> Rooms:
    """What makes each room, by its name; without `profile_engines` there is no room of all profiles."""

    def engine() -> "Engine":
        if session.engine is None:
            raise RuntimeError("No room but Runs is entered before the engine is open.")
        return session.engine

    def runs() -> Screen[Any]:
        from app.console.runs.screen import RunsScreen

        return RunsScreen(session)

    def health() -> Screen[Any]:
        from app.console.health.screen import HealthScreen

        return HealthScreen(session)

    def organizations() -> Screen[Any]:
        from app.console.organizations.screen import OrganizationsScreen

        return OrganizationsScreen(session, engine())

    def insights() -> Screen[Any]:
        from app.console.insights.screen import InsightsScreen

        return InsightsScreen(session, engine())

    def activity() -> Screen[Any]:
        from app.console.activity.screen import ActivityScreen

        return ActivityScreen(session, engine())

    def overview() -> Screen[Any]:
        from app.console.profiles.screen import ProfilesScreen

        if profile_engines is None:
            raise RuntimeError("Without profile engines there is one profile.")
        return ProfilesScreen(session, profile_engines)

    return {
        "runs": runs,
        "health": health,
        "organizations": organizations,
        "insights": insights,
        "activity": activity,
        OVERVIEW: overview,
    }
