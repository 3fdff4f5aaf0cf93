"""The state of every profile, read from its cache, and the polls of those that are not on show."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from app.api.errors import ApiError, RateLimitedError
from app.config import Profile
from app.console.profiles.engines import ProfileEngines
from app.console.session.feeds import read_vitals
from app.engine import Engine
from app.times import INSTANT
from storage.errors import StorageError
from storage.records import LinkState
from storage.records.insights import Outcomes
from widgets.frame.header_bar import Vitals
from widgets.profiles import ProfileFacts

GENTLE_S: Final = 60.0
"""Seconds between two polls of a profile that is not on show."""
LONGEST_S: Final = 900.0
"""Seconds between two polls of a failing one, at most."""
MONTH: Final = timedelta(days=30)
USUAL_FOR: Final = timedelta(hours=1)
"""The usual figures are counted again after this time: counting a month of many runs takes a moment."""


class ProfileOverview:
    """The state of each profile, and when it is polled next."""

    def __init__(self, profile_engines: ProfileEngines, current: str, clock: Callable[[], datetime]) -> None:
        """Start empty; the current profile polls by itself."""
        self._engines = profile_engines
        self._clock = clock
        self._not_before: dict[str, datetime] = {}
        """When each profile may be polled again."""
        self._usual: dict[str, tuple[datetime, Outcomes]] = {}
        """Each profile's outcomes of the month before today, and when they were counted."""
        self.facts = {each.name: initial_facts(each, current) for each in profile_engines.profiles}

    def make_due(self) -> None:
        """Make every profile due at the user's request, except those whose service stated a longer wait."""
        now = self._clock()
        self._not_before = {
            name: until for name, until in self._not_before.items() if until > now + timedelta(seconds=LONGEST_S)
        }

    async def round(self) -> AsyncIterator[None]:
        """Read every profile, then poll those that are due; yields after each change."""
        engines: list[Engine] = []
        for profile in self._engines.profiles:
            engine = await self._read(profile)
            if engine is not None:
                engines.append(engine)
            yield
        for engine in engines:
            if await self._ask(engine):
                await self._read(engine.profile)
                yield

    async def _read(self, profile: Profile) -> Engine | None:
        facts = self.facts[profile.name]
        try:
            engine = await self._engines.engine(profile.name)
            vitals = await read_vitals(engine, Vitals(profile.name, profile.read_only), self._clock())
            usual, today = await self._outcomes(engine)
        except StorageError as error:
            self.facts[profile.name] = replace(facts, problem=str(error))
            return None
        self.facts[profile.name] = replace(facts, vitals=vitals, problem="", usual=usual, today=today)
        return engine

    async def _outcomes(self, engine: Engine) -> tuple[Outcomes, Outcomes]:
        """The outcomes of the month before today, counted now and then, and of today."""
        now, name = self._clock() + await engine.cache.run_clock_ahead(), engine.profile.name
        day = now - timedelta(days=1)
        counted_at, usual = self._usual.get(name, (None, Outcomes(day, day)))
        if counted_at is None or now - counted_at >= USUAL_FOR:
            (usual,) = await engine.cache.outcomes((now - MONTH, day))
            self._usual[name] = (now, usual)
        (today,) = await engine.cache.outcomes((day, now + INSTANT))
        return usual, today

    async def _ask(self, engine: Engine) -> bool:
        """Poll a profile's service if it is due; return whether it was polled."""
        name = engine.profile.name
        vitals = self.facts[name].vitals
        if self.facts[name].is_current or vitals is None or not self._is_due(name, vitals.runs_link):
            return False
        problem = await engine.refresh()
        self._not_before[name] = self._clock() + timedelta(seconds=_wait_s(problem, vitals.runs_link))
        return True

    def _is_due(self, name: str, link: LinkState | None) -> bool:
        now = self._clock()
        if now < self._not_before.get(name, now):
            return False
        if link is None or link.last_ok_at is None or link.is_failing:
            return True
        # Another console or a bot may be polling it.
        return now - link.last_ok_at >= timedelta(seconds=GENTLE_S)


def initial_facts(profile: Profile, current: str) -> ProfileFacts:
    """The facts of a profile that the configuration has, before anything is read."""
    return ProfileFacts(profile.name, profile.base_url, profile.name == current, profile.read_only)


def _wait_s(problem: ApiError | None, link: LinkState | None) -> float:
    if problem is None:
        return GENTLE_S
    if isinstance(problem, RateLimitedError) and problem.retry_after_s is not None:
        return max(GENTLE_S, problem.retry_after_s)
    failures = link.failures if link is not None else 0
    return min(LONGEST_S, GENTLE_S * 2.0 ** min(failures, 10))
