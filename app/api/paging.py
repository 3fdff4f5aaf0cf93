"""Reading a list page by page, with a check for a list that would never end."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Final

from app.api.errors import EndlessListError
from storage.records import RunPage

FetchPage = Callable[[str | None], Awaitable[RunPage]]
"""Takes a page token, or None for the first page."""
BARREN: Final = 2
"""Pages in a row without a new run. One is normal: runs move while a list is read."""
NAMELESS: Final = 20
"""As `BARREN`, if the last page has only entries without a usable id: whether these are new is unknown."""


async def pages(fetch: FetchPage) -> AsyncIterator[RunPage]:
    """Yield every page until the list ends, with the runs marked that an earlier page had.

    Raises:
        EndlessListError: A token came twice, an empty page promises another, or two pages brought only known runs.
        ApiError: As `fetch` does.
    """
    tokens: set[str] = set()
    known: set[str] = set()
    barren, token = 0, None
    while True:
        page = await fetch(token)
        ids = {run.run_id for run in page.runs}
        new = ids - known
        known |= new
        yield replace(page, repeated=frozenset(ids - new)) if len(new) < len(ids) else page
        token = page.next_token
        if token is None:
            return
        if token in tokens:
            raise EndlessListError("The service repeated a page token; the list would never end.")
        if not page.runs and not page.dropped:
            raise EndlessListError("The service sent an empty page and promised another; the list would never end.")
        barren = 0 if new else barren + 1
        if barren >= (BARREN if page.runs else NAMELESS):
            raise EndlessListError(f"The service sent {barren} pages of no new run; the list would never end.")
        tokens.add(token)
