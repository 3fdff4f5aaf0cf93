"""One run by its id, though the API has no call for one: from the cache, else by paging (spec 4.2)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from app.cli.exits import failed
from storage.records import Run, RunFilter, RunSort

if TYPE_CHECKING:
    from app.engine import Engine

WINDOW: Final = 200
"""Cached rows looked through at a time for a prefix."""
SHORTEST_PREFIX: Final = 4
"""Characters: fewer would match by accident."""


@dataclass(frozen=True, slots=True)
class Finder:
    """Looks for runs on behalf of a command."""

    engine: "Engine"

    async def cached(self, text: str) -> Run:
        """The run of that id or unique prefix, among those that were seen.

        Raises:
            CommandFailed: There is none, or the prefix fits several.
        """
        run = await self._held(text)
        if run is None:
            raise failed("not_found", f"No run {text} was seen. Without --cached the service is asked.", run_id=text)
        return run

    async def current(self, text: str) -> Run:
        """The run of that id or unique prefix, as the service has it now.

        Raises:
            CommandFailed: The service has no such run, or the prefix fits several.
            ApiError: The service could not be asked.
        """
        held = await self._held(text)
        if held is None:
            return await self._from_service(text)
        if not await self.engine.runs.look_up(held) and held.created_at is not None:
            await self.engine.cache.set_presence([held.run_id], "lost")
        return await self._held(held.run_id) or held

    async def named(self, text: str) -> Run:
        """The run of that id or unique prefix, from wherever it is found first.

        Raises:
            CommandFailed: There is no such run, or the prefix fits several.
            ApiError: The service could not be asked.
        """
        return await self._held(text) or await self._from_service(text)

    async def _held(self, text: str) -> Run | None:
        if not text.strip():
            raise failed("usage", "Name a run by its id, or by the beginning of it. See: runwarden runs list")
        detail = await self.engine.cache.detail(text)
        if detail is not None:
            return detail.run
        if len(text) < SHORTEST_PREFIX:
            return None
        found = await self._by_prefix(text)
        return None if found is None else await self._held(found)

    async def _by_prefix(self, prefix: str) -> str | None:
        matching: list[str] = []
        offset = 0
        while rows := await self.engine.cache.rows(RunFilter(search=prefix), RunSort(), offset=offset, limit=WINDOW):
            matching += [row.run_id for row in rows if row.run_id.startswith(prefix)]
            offset += len(rows)
        return _only(prefix, matching)

    async def _from_service(self, text: str) -> Run:
        from app.api.client import pages

        size = self.engine.profile.poll.page_size
        client = self.engine.client
        async for page in pages(lambda token: client.list_runs(page_size=size, page_token=token)):
            await self.engine.runs.store(page.runs)
            by_id = {run.run_id: run for run in page.runs}
            if text in by_id:
                return by_id[text]
            if len(text) >= SHORTEST_PREFIX:
                found = _only(text, [run_id for run_id in by_id if run_id.startswith(text)])
                if found is not None:
                    return by_id[found]
        raise failed("not_found", f"The service has no run {text}. See: runwarden runs list", run_id=text)


def _only(prefix: str, matching: list[str]) -> str | None:
    if len(matching) > 1:
        raise failed(
            "ambiguous", f"{prefix} fits {len(matching)} runs: write more of the id.", candidates=list(matching[:10])
        )
    return matching[0] if matching else None
