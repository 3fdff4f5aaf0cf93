"""Walking a list that the service might never end."""

import pytest

from app.api.client import pages
from app.api.errors import UnusableAnswerError
from storage.records import Repository, Run, RunPage


def page(*ids: str, token: str | None) -> RunPage:
    repository = Repository.parse("acme/api")
    return RunPage(tuple(Run(i, "queued", "b", repository, None, None, "{}") for i in ids), token)


async def walk(*answers: RunPage) -> list[str]:
    rest = iter(answers)

    async def fetch(_: str | None) -> RunPage:
        return next(rest)

    return [run.run_id async for one in pages(fetch) for run in one.runs]


async def test_every_page_is_walked_until_no_token_is_left() -> None:
    """A missing token ends the list."""
    assert await walk(page("a", "b", token="1"), page("c", token=None)) == ["a", "b", "c"]


async def test_a_repeated_token_stops_with_an_error() -> None:
    """A token that comes twice would be followed for ever."""
    with pytest.raises(UnusableAnswerError, match="repeated"):
        await walk(page("a", token="1"), page("b", token="2"), page("c", token="1"))


async def test_an_empty_page_with_a_token_stops_with_an_error() -> None:
    """An empty page that promises another is no progress."""
    with pytest.raises(UnusableAnswerError, match="empty page"):
        await walk(page(token="1"))


async def test_an_empty_list_is_a_list() -> None:
    """No runs at all is an answer, not an error."""
    assert await walk(page(token=None)) == []
