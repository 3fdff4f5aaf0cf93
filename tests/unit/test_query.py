"""The query language: what a line means, what is said of one that means nothing, and a filter as text and back."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app.runs.query import KeyName, Vocabulary, listed, parse, suggestions
from app.runs.screen_views import as_typed, replaced
from storage.records import RunFilter
from storage.records.query import FINDINGS

NOW = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)
DAY = timedelta(days=1)
INSTANT = timedelta(microseconds=1)


def test_a_line_means_a_filter() -> None:
    """Conditions, their inverses, lists, aliases, quotes, and words for everything else."""
    for line, wanted in (
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
    ):
        query = parse(line, NOW)
        assert query.filter == wanted, line
        assert query.problems == (), line


def test_times_limit_and_their_inverses_meet_them() -> None:
    """A date is all of its day; what is not since it ends the instant before it; the tighter of two limits holds."""
    for line, since, until in (
        ("since:2h", NOW - timedelta(hours=2), None),
        ("from:2026-05-01", datetime(2026, 5, 1, tzinfo=UTC), None),
        ("until:2026-05-01", None, datetime(2026, 5, 1, 23, 59, 59, 999999, tzinfo=UTC)),
        ("to:2026-05-01T12:00:00+02:00", None, datetime(2026, 5, 1, 10, tzinfo=UTC)),
        ("-since:7d", None, NOW - 7 * DAY - INSTANT),
        ("-since:2026-05-01", None, datetime(2026, 5, 1, tzinfo=UTC) - INSTANT),
        ("-until:2026-05-01", datetime(2026, 5, 2, tzinfo=UTC), None),
        ("since:7d since:2d", NOW - 2 * DAY, None),
        ("until:7d until:2d", None, NOW - 7 * DAY),
    ):
        query = parse(line, NOW)
        assert (query.filter.since, query.filter.until, query.problems) == (since, until, ()), line


def test_what_means_nothing_is_said_with_its_place_and_a_cure() -> None:
    """Place, message and cure; the sentence counts characters from 1, as people do."""
    for line, place, message, cure in (
        ("a statsu:failed", (2, 9), "There is no statsu:", "status:?"),
        (
            "Result:fixed",
            (0, 7),
            "There is no Result:",
            "There are status, repo, branch, agent, finding, since, until, is.",
        ),
        ("finding:major,blocking", (14, 22), "There is no finding 'blocking'", "finding:blocker?"),
        ("finding:7", (8, 9), "There is no finding '7'", "There are blocker, major, minor, note, any, none, unknown."),
        ("x status:", (9, 9), "lacks its value", "status:failed"),
        ("status:fail*", (7, 12), "no pattern", "-status:"),
        ("since:yesterday", (6, 15), "not a valid time", "2026-05-01"),
        ("since:0001-01-01 -since:0001-01-01", (24, 34), "calendar", "2026"),
        ("since:99999999d", (6, 15), "century", "7d"),
        ("until:1d,2d", (8, 11), "one value", "until:"),
        ("is:asleep", (3, 9), "There is no state 'asleep'", "is:active"),
        ("-is:stuck", (0, 9), "cannot be excluded", "Take the minus away"),
        ("-word", (0, 5), "cannot be excluded", '"-word"'),
        ('branch:"open', (7, 12), "not closed", 'End it with "'),
        ("is:active is:ended", (10, 18), "both", "Keep one"),
        ("status:queued is:ended", (14, 22), "None of these", "Take this away"),
        ("since:1d until:2d", (9, 17), "before the earliest", "Widen"),
    ):
        (problem,) = parse(line, NOW).problems
        assert (problem.start, problem.end) == place, line
        assert message in problem.message, line
        assert cure in problem.cure, line
        assert str(problem).startswith(f"at character {place[0] + 1}: "), line


def test_an_endless_line_is_cut_and_said() -> None:
    """Only a paste is as long; it must not freeze the screen."""
    query = parse("x " * 100_000, NOW)

    assert len(query.filter.search) < 5_000
    assert "longer than" in query.problems[0].message


KNOWN = Vocabulary(
    repositories=("acme/web", "acme/api", "gitlab:acme/tools", 'odd"o/a b'),
    branches=("main", "agent/dark-mode"),
    agents=("reviewer", "claude"),
    statuses=("paused",),
)

odd = ["failed", "Failed", "acme/api", "api", "acme/", "gitlab:", "a,b", '"', "\\", "-x", "since:7d", "*", "unknown"]
names = st.text(max_size=12) | st.sampled_from(odd)
lists = st.lists(names, max_size=3, unique=True).map(tuple)
findings = st.lists(st.sampled_from(FINDINGS), max_size=3, unique=True).map(tuple)
keys = st.sampled_from(["status", "repo", "branch", "agent"])


@given(keys, lists, lists, findings, findings)
def test_written_values_are_read_back_as_themselves(
    key: KeyName, asked: tuple[str, ...], excluded: tuple[str, ...], found: tuple[str, ...], left: tuple[str, ...]
) -> None:
    """Whatever is in them."""
    query = parse(" ".join((*listed(key, asked, excluded), *listed("finding", found, left))), NOW)

    name = {"status": "statuses", "repo": "repositories", "branch": "branches", "agent": "agents"}[key]
    fields: dict[str, Any] = {name: asked, f"not_{name}": excluded}
    assert query.filter == RunFilter(**fields, findings=found, not_findings=left)
    assert query.problems == ()


@given(st.text(alphabet=st.sampled_from('abc:,"-\\* /\t\u2028é'), max_size=40) | st.text(max_size=60))
def test_any_line_is_read(line: str) -> None:
    """Nothing raises, and spans lie in order within the line."""
    query = parse(line, NOW)
    ends = [0]
    for span in query.spans:
        assert ends[-1] <= span.start < span.end <= len(line)
        ends.append(span.end)


def test_suggestions_complete_the_piece_at_the_cursor() -> None:
    """Keys, then what is known for them; what stands there already is none."""
    for line, inserts in (
        ("", ["status:", "repo:", "branch:", "agent:", "finding:", "since:", "until:", "is:"]),
        ("st", ["status:"]),
        ("login -s", ["status:", "since:"]),
        ("status:", ["cancelled", "completed", "failed", "queued", "working", "paused"]),
        ("status:failed,", ["cancelled", "completed", "queued", "working", "paused"]),
        ("repo:ap", ["acme/api"]),
        ("repo:acme", ["acme/web", "acme/api", "acme/*", "gitlab:acme/tools", "gitlab:acme/*"]),
        ("repo:odd", ['"odd\\"o/a b"', 'odd"o/*']),
        ("-branch:ag", ["agent/dark-mode"]),
        ("agent:c", ["claude"]),
        ("-finding:n", ["note", "none", "minor", "any", "unknown"]),
        ("is:", ["active", "ended", "stuck", "followed"]),
        ("since:", ["1h", "24h", "7d", "30d"]),
        ("web", ["repo:acme/web"]),
        ("status:failed", []),
        ('"st', []),
        ("statsu:fa", []),
    ):
        assert [each.insert for each in suggestions(line, len(line), KNOWN)] == inserts, line


@given(st.text(alphabet=st.sampled_from('staurepo:,"-\\* /i'), max_size=20), st.data())
def test_a_suggestion_taken_leaves_a_line_that_is_understood(line: str, data: st.DataObject) -> None:
    """It replaces the piece that the cursor touches and nothing else, and makes no new problem but a missing value."""
    cursor = data.draw(st.integers(0, len(line)))
    for suggestion in suggestions(line, cursor, KNOWN):
        after, behind = suggestion.applied(line)

        assert after[behind:] == line[suggestion.end :]
        assert after[: suggestion.start] == line[: suggestion.start]
        assert len(parse(after, NOW).problems) <= len(parse(line, NOW).problems) + 1


def test_new_terms_take_the_place_of_old_ones() -> None:
    """The rest of the line stays as it was written: `since:7d` is not turned into a date."""
    for line, new, after in (
        ("", ["status:failed"], "status:failed"),
        ("login", ["status:failed"], "login status:failed"),
        ("status:queued login -status:failed", ["status:working"], "status:working login"),
        ('since:7d status:queued "two words"', [], 'since:7d "two words"'),
        ("Status:queued since:7d", ["-status:failed"], "-status:failed since:7d"),
    ):
        assert replaced(line, {"status"}, new) == after


def test_what_is_begun_counts_as_far_as_it_goes() -> None:
    """A line that is being typed never empties the table for want of its last letters, and is not called wrong."""
    for line, wanted in (
        ("status:", RunFilter()),
        ("status:f", RunFilter(statuses=("failed",))),
        ("status:w,q", RunFilter(statuses=("w", "queued"))),
        ("status:odd", RunFilter(statuses=("odd",))),
        ("repo:pay", RunFilter(repositories=("*pay*",))),
        ("-branch:agent/", RunFilter(not_branches=("*agent/*",))),
        ("login since:2", RunFilter(search="login")),
        ("is:followed", RunFilter(followed=True)),
        ('login "two', RunFilter(search="login")),
        ("login -", RunFilter(search="login -")),
        ("login -x", RunFilter(search="login")),
    ):
        query = parse(as_typed(line, len(line)), NOW)
        assert query.filter == wanted, line
        assert not query.problems, line


@given(st.text(alphabet=" -:,*abstu/7d", max_size=30), st.integers(0, 30))
def test_only_the_piece_at_the_cursor_is_read_differently(line: str, cursor: int) -> None:
    """Behind a blank, the line means what it says."""
    assert parse(as_typed("stauts:failed", 13), NOW).problems, "no further letter can correct it"
    assert parse(as_typed(f"{line} ", len(line) + 1), NOW) == parse(f"{line} ", NOW)
    assert isinstance(as_typed(line, min(cursor, len(line))), str)
