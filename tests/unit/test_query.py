"""The query language: what a line means, and what is said of a line that means nothing."""

from datetime import UTC, datetime, timedelta

import pytest

from app.runs.query import both, parse
from storage.records import RunFilter

NOW = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)
DAY = timedelta(days=1)
INSTANT = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("", RunFilter()),
        ("login timeout", RunFilter(search="login timeout")),
        ("STATUS:Failed status:QUEUED,failed", RunFilter(statuses=("failed", "queued"))),
        ("status:Odd_One", RunFilter(statuses=("Odd_One",))),
        ("-status:completed", RunFilter(not_statuses=("completed",))),
        ("repo:github:acme/api", RunFilter(repositories=("acme/api",))),
        ("repo:api", RunFilter(repositories=("*/api",))),
        ("repo:acme/", RunFilter(repositories=("acme/*",))),
        ("repo:gitlab:", RunFilter(repositories=("gitlab:*",))),
        ('repo:"api"', RunFilter(repositories=("api",))),
        ("-repo:acme/web,acme/api", RunFilter(not_repositories=("acme/web", "acme/api"))),
        ("branch:main -branch:agent/*", RunFilter(branches=("main",), not_branches=("agent/*",))),
        ('branch:"a, b",c', RunFilter(branches=("a, b", "c"))),
        (r'branch:"say \"hi\" \\ there"', RunFilter(branches=(r'say "hi" \ there',))),
        ("agent:claude,Review* -agent:unknown", RunFilter(agents=("claude", "Review*"), not_agents=("",))),
        ('agent:Unknown,"unknown"', RunFilter(agents=("", "unknown"))),
        ("finding:Blocker,major", RunFilter(findings=("blocker", "major"))),
        ("findings:any -finding:unknown", RunFilter(findings=("any",), not_findings=("unknown",))),
        ("-is:ended", RunFilter(active=True)),
        ("-is:active status:failed,queued", RunFilter(statuses=("failed", "queued"), ended=True)),
        ('"status:failed" "-x"', RunFilter(search="status:failed -x")),
        ("gitlab:acme/tools", RunFilter(search="gitlab:acme/tools")),
        ("a - b", RunFilter(search="a - b")),
        ('"a"b', RunFilter(search="a b")),
        ("status:failed,", RunFilter(statuses=("failed",))),
    ],
)
def test_a_line_means_a_filter(line: str, wanted: RunFilter) -> None:
    """Conditions, their inverses, lists, aliases, quotes, and words for everything else."""
    query = parse(line, NOW)

    assert query.filter == wanted
    assert query.problems == ()


@pytest.mark.parametrize(
    ("line", "since", "until"),
    [
        ("since:2h", NOW - timedelta(hours=2), None),
        ("from:2026-05-01", datetime(2026, 5, 1, tzinfo=UTC), None),
        ("until:2026-05-01", None, datetime(2026, 5, 1, 23, 59, 59, 999999, tzinfo=UTC)),
        ("to:2026-05-01T12:00:00+02:00", None, datetime(2026, 5, 1, 10, tzinfo=UTC)),
        ("-since:7d", None, NOW - 7 * DAY - INSTANT),
        ("-since:2026-05-01", None, datetime(2026, 5, 1, tzinfo=UTC) - INSTANT),
        ("-until:2026-05-01", datetime(2026, 5, 2, tzinfo=UTC), None),
        ("since:7d since:2d", NOW - 2 * DAY, None),
        ("until:7d until:2d", None, NOW - 7 * DAY),
    ],
)
def test_times_limit_and_their_inverses_meet_them(line: str, since: datetime | None, until: datetime | None) -> None:
    """A date is all of its day; what is not since it ends the instant before it; the tighter of two limits holds."""
    query = parse(line, NOW)

    assert (query.filter.since, query.filter.until, query.problems) == (since, until, ())


@pytest.mark.parametrize(
    ("line", "place", "message", "cure"),
    [
        ("a statsu:failed", (2, 9), "There is no statsu:", "status:?"),
        (
            "Result:fixed",
            (0, 7),
            "There is no Result:",
            "There are status, repo, branch, agent, finding, since, until, is.",
        ),
        ("finding:major,blocking", (14, 22), "No finding is 'blocking'", "finding:blocker?"),
        ("finding:7", (8, 9), "No finding is '7'", "There are blocker, major, minor, note, any, none, unknown."),
        ("x status:", (9, 9), "lacks its value", "status:failed"),
        ("status:fail*", (7, 12), "no pattern", "-status:"),
        ("since:yesterday", (6, 15), "not a valid time", "2026-05-01"),
        ("since:0001-01-01 -since:0001-01-01", (24, 34), "calendar", "2026"),
        ("since:99999999d", (6, 15), "century", "7d"),
        ("until:1d,2d", (8, 11), "one value", "until:"),
        ("is:asleep", (3, 9), "never 'asleep'", "is:active"),
        ("-is:stuck", (0, 9), "cannot be excluded", "Take the minus away"),
        ("-word", (0, 5), "cannot be excluded", '"-word"'),
        ('branch:"open', (7, 12), "not closed", 'End it with "'),
        ("is:active is:ended", (10, 18), "both", "Keep one"),
        ("status:queued is:ended", (14, 22), "No status", "Take this away"),
        ("since:1d until:2d", (9, 17), "before the earliest", "Widen"),
    ],
)
def test_what_means_nothing_is_said_with_its_place_and_a_cure(
    line: str, place: tuple[int, int], message: str, cure: str
) -> None:
    """Place, message and cure; the sentence counts characters from 1, as people do."""
    (problem,) = parse(line, NOW).problems

    assert (problem.start, problem.end) == place
    assert message in problem.message
    assert cure in problem.cure
    assert str(problem).startswith(f"at character {place[0] + 1}: ")


def test_spans_say_what_each_piece_is() -> None:
    """Signs, keys with their colons, values without commas, words, problems; the sound rest of the line counts."""
    line = "-status:failed,queued  login since:soon"
    query = parse(line, NOW)
    spans = [(line[span.start : span.end], span.kind) for span in query.spans]

    assert query.filter == RunFilter(not_statuses=("failed", "queued"), search="login")
    assert [problem.start for problem in query.problems] == [35]
    assert spans == [
        ("-", "sign"),
        ("status:", "key"),
        ("failed", "value"),
        ("queued", "value"),
        ("login", "word"),
        ("since:", "problem"),
        ("soon", "problem"),
    ]


def test_an_endless_line_is_cut_and_said() -> None:
    """Only a paste is as long; it must not freeze the screen."""
    query = parse("x " * 100_000, NOW)

    assert len(query.filter.search) < 5_000
    assert "longer than" in query.problems[0].message


def test_two_filters_hold_as_one_line_would() -> None:
    """Lists join, limits tighten, words add up."""
    one, other = "status:failed since:7d login is:active", "status:queued,failed since:2d until:now web -repo:acme/x"

    assert both(parse(one, NOW).filter, parse(other, NOW).filter) == parse(f"{one} {other}", NOW).filter
