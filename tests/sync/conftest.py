import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.api.errors import ApiError
from app.engine.engine import Engine
from app.profiles import load
from app.profiles.load import CACHE_FILE
from app.profiles.token import ReadToken, Token
from storage.values import utc_now
from tests.cli.conftest import CommandLine, Result
from tests.lab import Lab

FIRST, LAST = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"
MINUTE = timedelta(minutes=1)


def seconds(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S}Z"


def unreadable(at: datetime) -> str:
    return f"moment {at:%H.%M}"


class Recorder(Lab):
    """A service that records when each of its runs entered its list."""

    def __init__(self, **habits: Any) -> None:
        self.born: dict[str, datetime] = {}
        """The true time at which each run entered the list."""
        super().__init__(**habits)

    def put(self, run_id: str, status: str = "completed", **more: Any) -> None:
        super().put(run_id, status, **more)
        self.born.setdefault(run_id, self.now)

    def created(self, run_id: str) -> datetime:
        return datetime.fromisoformat(self._true_times[run_id]["created_at"])

    def read(self, run_id: str) -> datetime:
        """The creation time, as the client reads it from the document."""
        if self.show_time is unreadable:
            return datetime.min.replace(tzinfo=UTC)
        shown = datetime.fromisoformat(str(self.show_time(self.created(run_id))))
        return shown if shown.tzinfo else shown.replace(tzinfo=UTC)


@dataclass
class Desk:
    """One data folder and one lab: an engine on them, and the command line."""

    peer: Lab
    folder: Path

    @asynccontextmanager
    async def engine(
        self, *, token: str = "test-token", clock: Callable[[], datetime] = utc_now, **poll: Any
    ) -> AsyncIterator[Engine]:
        settings = load(None, CommandLine(self.folder, self.peer.base_url).environment)
        profile = settings.profile()
        profile = replace(profile, token=ReadToken(Token(token)), poll=replace(profile.poll, **poll))
        async with await Engine.open(settings, profile, actor="cli", clock=clock) as engine:
            yield engine

    @asynccontextmanager
    async def begun(self, **poll: int) -> AsyncIterator[Engine]:
        """An engine after its first refresh, which read twenty runs."""
        async with self.engine(**{"first_runs": 20, "page_size": 20, **poll}) as engine:
            await engine.runs.refresh()
            yield engine

    def poll(self, times: int = 1, **options: Any) -> list[ApiError | None]:
        """Run a process that refreshes the runs this often; return each refresh's error."""

        async def refresh(engine: Engine) -> list[ApiError | None]:
            results = []
            for _ in range(times):
                results += await asyncio.gather(engine.runs.refresh(), return_exceptions=True)
            return [result if isinstance(result, ApiError) else None for result in results]

        return self.within(refresh, **options)

    def within(self, do: Callable[[Engine], Coroutine[Any, Any, Any]], **options: Any) -> Any:
        """Run a process that does this with an engine."""

        async def process() -> Any:
            async with self.engine(**options) as engine:
                return await do(engine)

        return asyncio.run(process())

    def run(self, *arguments: str) -> Result:
        return CommandLine(self.folder, self.peer.base_url, "test-token")(*arguments)

    def facts(self, *arguments: str) -> Any:
        """The JSON of a command."""
        result = self.run(*arguments, "--json")
        assert result.out, result
        return json.loads(result.out)

    def false_claims(self, document: Any) -> set[str]:
        """Runs that `runs list` claims to have cached, and has not."""
        assert isinstance(self.peer, Recorder)
        claims = [(period["from"] or FIRST, period["to"], str(utc_now())) for period in document["complete"]]
        if document["complete_since"] is not None:
            claims.append((document["complete_since"], LAST, document["as_of"]))
        times = [tuple(map(datetime.fromisoformat, claim)) for claim in claims]
        return {
            run_id
            for run_id in (self.missing() if claims else ())
            for start, end, as_of in times
            if start <= self.peer.read(run_id) <= end and self.peer.born[run_id] <= as_of
        }

    def missing(self) -> set[str]:
        (file,) = self.folder.rglob(CACHE_FILE)
        with closing(sqlite3.connect(file)) as cache:
            return set(self.peer.runs) - {run_id for (run_id,) in cache.execute("SELECT run_id FROM runs")}

    def asked(self) -> int:
        """The number of requests since the last call."""
        count = len(self.peer.requests)
        self.peer.requests.clear()
        return count


@pytest.fixture
def peer(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    """A service with the real time and the habits that the test names."""
    with Recorder(clock=utc_now, **getattr(request, "param", {})) as peer:
        yield peer


@pytest.fixture
def desk(peer: Recorder, tmp_path: Path) -> Desk:
    """A separate data folder for that service."""
    return Desk(peer, tmp_path)
