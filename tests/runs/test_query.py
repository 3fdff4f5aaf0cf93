"""The query language: the meaning of a line, the errors, and writing a filter as text."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.runs.query import KeyName, list_terms, parse
from storage.records import RunFilter
from storage.records.query import FINDINGS

NOW = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)
DAY = timedelta(days=1)
INSTANT = timedelta(microseconds=1)


def test_a_query_line_becomes_a_filter() -> None:
    """A line has conditions, inverses, lists, aliases, quotes, and words for everything else."""
    for line, wanted in (
        ("", RunFilter()),
        ("login timeout", RunFilter(search="login timeout")),
        ("STATUS:Failed status:QUEUED,failed", RunFilter(statuses=("failed", "queued"))),
        ("repo:github:acme/api", RunFilter(repositories=("acme/api",))),
        ("repo:api", RunFilter(repositories=("*/api",))),
        ('repo:"api"', RunFilter(repositories=("api",))),
        ("-repo:acme/web,acme/api", RunFilter(not_repositories=("acme/web", "acme/api"))),
        ("branch:main -branch:agent/*", RunFilter(branches=("main",), not_branches=("agent/*",))),
        ("agent:claude,Review* -agent:unknown", RunFilter(agents=("claude", "Review*"), not_agents=("",))),
        ("findings:any -finding:unknown", RunFilter(findings=("any",), not_findings=("unknown",))),
        ("-is:ended", RunFilter(active=True)),
        ("-is:active status:failed,queued", RunFilter(statuses=("failed", "queued"), ended=True)),
        ('"status:failed" "-x"', RunFilter(search="status:failed -x")),
    ):
        query = parse(line, NOW)
        assert query.filter == wanted, line
        assert query.problems == (), line


def test_times_and_their_inverses_have_no_gap() -> None:
    """A date includes its whole day, the inverse of `since` ends the instant before, and the tighter limit holds."""
    for line, since, until in (
        ("since:2h", NOW - timedelta(hours=2), None),
        ("from:2026-05-01", datetime(2026, 5, 1, tzinfo=UTC), None),
        ("until:2026-05-01", None, datetime(2026, 5, 1, 23, 59, 59, 999999, tzinfo=UTC)),
        ("to:2026-05-01T12:00:00+02:00", None, datetime(2026, 5, 1, 10, tzinfo=UTC)),
        ("-since:2026-05-01", None, datetime(2026, 5, 1, tzinfo=UTC) - INSTANT),
        ("-until:2026-05-01", datetime(2026, 5, 2, tzinfo=UTC), None),
        ("until:7d until:2d", None, NOW - 7 * DAY),
    ):
        query = parse(line, NOW)
        assert (query.filter.since, query.filter.until, query.problems) == (since, until, ()), line


def test_query_errors_have_position_and_fix() -> None:
    """The error has position, message and fix; the sentence counts characters from 1."""
    for line, place, message, fix in (
        ("a statsu:failed", (2, 9), "There is no statsu:", "status:?"),
        ("finding:major,blocking", (14, 22), "There is no finding 'blocking'", "finding:blocker?"),
        ("since:0001-01-01 -since:0001-01-01", (24, 34), "calendar", "2026"),
        ("-word", (0, 5), "cannot be excluded", '"-word"'),
        ("is:active is:ended", (10, 18), "both", "Keep one"),
    ):
        (problem,) = parse(line, NOW).problems
        assert (problem.start, problem.end) == place, line
        assert message in problem.message, line
        assert fix in problem.fix, line
        assert str(problem).startswith(f"at character {place[0] + 1}: "), line


odd = ["failed", "Failed", "acme/api", "api", "acme/", "gitlab:", "a,b", '"', "\\", "-x", "since:7d", "*", "unknown"]
names = st.text(max_size=12) | st.sampled_from(odd)
lists = st.lists(names, max_size=3, unique=True).map(tuple)
findings = st.lists(st.sampled_from(FINDINGS), max_size=3, unique=True).map(tuple)
keys = st.sampled_from(["status", "repo", "branch", "agent"])


@given(keys, lists, lists, findings, findings)
def test_written_values_are_read_back(
    key: KeyName, asked: tuple[str, ...], excluded: tuple[str, ...], found: tuple[str, ...], left: tuple[str, ...]
) -> None:
    """Written values may contain any characters."""
    query = parse(" ".join((*list_terms(key, asked, excluded), *list_terms("finding", found, left))), NOW)

    name = {"status": "statuses", "repo": "repositories", "branch": "branches", "agent": "agents"}[key]
    fields: dict[str, Any] = {name: asked, f"not_{name}": excluded}
    assert query.filter == RunFilter(**fields, findings=found, not_findings=left)
    assert query.problems == ()
