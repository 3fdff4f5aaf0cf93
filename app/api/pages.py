"""Walking the pages of a list, without trusting the service to end it."""

from collections.abc import AsyncIterator, Awaitable, Callable

from app.api.errors import UnusableAnswerError
from storage.records import RunPage

FetchPage = Callable[[str | None], Awaitable[RunPage]]
"""Given a page token, or None for the first page."""


async def pages(fetch: FetchPage) -> AsyncIterator[RunPage]:
    """Every page, until the service says that there is no more.

    Raises:
        UnusableAnswer: A token came twice, or an empty page promised another: following it could go on for ever.
        ApiError: As `fetch` does.
    """
    seen: set[str] = set()
    token: str | None = None
    while True:
        page = await fetch(token)
        yield page
        if page.next_token is None:
            return
        if page.next_token in seen:
            raise UnusableAnswerError("The service repeated a page token; the list would never end.")
        if not page.runs:
            raise UnusableAnswerError("The service sent an empty page and promised another; the list would never end.")
        token = page.next_token
        seen.add(token)
