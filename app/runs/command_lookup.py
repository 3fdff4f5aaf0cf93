"""Finding one run for an id; the API has no call for it (spec 4.2)."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from app.cli.exits import failed
from app.cli.progress import progress_bar
from app.engine.text import safe_text
from storage.records import Coverage, Run, RunFilter, RunSort

if TYPE_CHECKING:
    from app.engine.engine import Engine

WINDOW: Final = 200
"""Cached rows searched for a part of an id at a time."""
SHORTEST_PART: Final = 4
"""Characters; a shorter part would match by accident."""
MOST_CANDIDATES: Final = 10


class RunLookup(Struct, frozen=True):
    """Finds runs for a command: by the id, or by a beginning or an end of it that fits one cached run only."""

    engine: "Engine"

    async def cached(self, text: str) -> Run:
        """The cached run with that id or unique part.

        Raises:
            CommandFailedError: There is none, or the part is ambiguous.
        """
        run = await self._held(text)
        if run is None:
            raise failed(
                "not_found", f"No run {text} in the cache. Leave out --cached to ask the service.", run_id=text
            )
        return run

    async def current(self, text: str) -> Run:
        """The run with that id or unique part, as the service has it now.

        Raises:
            CommandFailedError: The service has no such run, or the part is ambiguous.
            ApiError: The service could not be asked.
        """
        held = await self._held(text)
        if held is None:
            return await self._from_service(text)
        if await self.engine.runs.look_up(held) == "unknown":
            await self.engine.runs.refresh()
        return await self._held(held.run_id) or held

    async def named(self, text: str) -> Run:
        """The run with that id or unique part, from the cache or the service.

        Raises:
            CommandFailedError: There is no such run, or the part is ambiguous.
            ApiError: The service could not be asked.
        """
        return await self._held(text) or await self._from_service(text)

    async def to_change(self, text: str, tell: Callable[[str], None]) -> Run:
        """The same as `named`; reports the run that a part of an id means."""
        run = await self.named(text)
        if run.run_id != text:
            tell(f"{text} is the run {run.run_id}.")
        return run

    async def _held(self, text: str) -> Run | None:
        if not text.strip():
            raise failed("usage", "Name a run by its id or the beginning or the end of it. See: runwarden runs list")
        detail = await self.engine.cache.detail(text)
        if detail is not None:
            return detail.run
        if len(text) < SHORTEST_PART:
            return None
        matching: list[str] = []
        offset = 0
        while rows := await self.engine.cache.rows(RunFilter(search=text), RunSort(), offset=offset, limit=WINDOW):
            matching += [row.run_id for row in rows if row.run_id.startswith(text) or row.run_id.endswith(text)]
            offset += len(rows)
        if len(matching) > 1:
            candidates = matching[:MOST_CANDIDATES]
            named = ", ".join(candidates) + (", …" if len(matching) > len(candidates) else "")
            message = f"{text} matches {len(matching)} runs, write more of the id: {named}"
            raise failed("ambiguous", message, candidates=list(candidates))
        return await self._held(matching[0]) if matching else None

    async def _from_service(self, text: str) -> Run:
        """Fetch the newest runs, then older ones that are not here, until the run is among them."""
        async for _ in self.engine.listing.pages(RunFilter(), limit=self.engine.profile.poll.page_size):
            pass
        cache = self.engine.cache
        before: tuple[Coverage, int] | None = None
        with progress_bar(self.engine, f"Looking for {safe_text(text, limit=60)}"):
            while (detail := await self._held(text)) is None:
                held = await cache.coverage(), await cache.count(RunFilter())
                if held == before:
                    break
                before = held
                await self.engine.backfill.fetch_older()
        if detail is not None:
            return detail
        whole = (await cache.coverage()).whole
        message = f"The service has no run {text}." if whole else f"No run {text} was found at the service."
        raise failed("not_found", f"{message} See: runwarden runs list", run_id=text)
