"""Walking a list that the service might never end."""

import pytest
from app.api.paging import pages

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


@pytest.mark.parametrize(
    ("answers", "ids"),
    [([page("a", "b", token="1"), page("c", token=None)], ["a", "b", "c"]), ([page(token=None)], [])],
)
async def test_every_page_is_walked_until_no_token_is_left(answers: list[RunPage], ids: list[str]) -> None:
    """A missing token ends the list; no runs at all are an answer."""
    assert await walk(*answers) == ids


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([page("a", token="1"), page("b", token="2"), page("c", token="1")], "repeated"),
        ([page(token="1")], "empty page"),
    ],
)
async def test_a_list_that_would_never_end_stops_with_an_error(answers: list[RunPage], said: str) -> None:
    """A token that comes twice, or an empty page that promises another."""
    with pytest.raises(UnusableAnswerError, match=said):
        await walk(*answers)


async def test_runs_that_come_again_are_marked() -> None:
    """Those that an earlier page had."""
    rest = iter([page(*"abcd", token="1"), page(*"xcdy", token=None)])

    async def fetch(_: str | None) -> RunPage:
        return next(rest)

    assert [one.repeated async for one in pages(fetch)] == [frozenset(), frozenset("cd")]
