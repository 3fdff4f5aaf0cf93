"""A filter as text, and the text as the same filter again; suggestions that are part of the language."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.query import Vocabulary, parse, suggestions, written
from storage.records import RunFilter

NOW = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)
KNOWN = Vocabulary(
    repositories=("acme/web", "acme/api", "gitlab:acme/tools", 'odd"o/a b'),
    branches=("main", "agent/dark-mode"),
    statuses=("paused",),
)

names = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["failed", "Failed", "acme/api", "api", "acme/", "gitlab:", "a,b", '"', "\\", "-x", "since:7d", "*"]
    ),
)
lists = st.lists(names, max_size=3, unique=True).map(tuple)
moments = st.none() | st.datetimes(timezones=st.just(UTC))
filters = st.builds(
    RunFilter,
    statuses=lists,
    not_statuses=lists,
    repositories=lists,
    not_repositories=lists,
    branches=lists,
    not_branches=lists,
    since=moments,
    until=moments,
    search=st.lists(names, max_size=4).map(lambda words: " ".join(" ".join(words).split())),
    active=st.booleans(),
    stuck=st.booleans(),
)


@given(filters)
def test_a_written_filter_is_read_back_as_itself(wanted: RunFilter) -> None:
    """Whatever is in its names; only an empty range of time is told to be one."""
    query = parse(written(wanted), NOW)

    is_empty = wanted.since is not None and wanted.until is not None and wanted.since > wanted.until
    assert query.filter == wanted
    assert len(query.problems) == is_empty


@given(st.text(alphabet=st.sampled_from('abc:,"-\\* /\t\u2028é'), max_size=40) | st.text(max_size=60))
def test_any_line_is_read_and_its_meaning_is_stable(line: str) -> None:
    """Nothing raises, spans lie in order within the line, and what was understood can be written and read again."""
    query = parse(line, NOW)
    ends = [0]
    for span in query.spans:
        assert ends[-1] <= span.start < span.end <= len(line)
        ends.append(span.end)

    assert parse(written(query.filter), NOW).filter == query.filter


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        (RunFilter(), ""),
        (RunFilter(statuses=("failed",), search="login"), "status:failed login"),
        (RunFilter(active=True, not_branches=("agent/*",)), "is:active -branch:agent/*"),
        (RunFilter(repositories=("acme/api", "api")), 'repo:acme/api,"api"'),
        (RunFilter(since=datetime(2026, 5, 1, tzinfo=UTC)), "since:2026-05-01T00:00:00Z"),
        (RunFilter(search="status:x -y a:b"), '"status:x" "-y" a:b'),
    ],
)
def test_the_text_of_a_filter_is_as_plain_as_it_can_be(wanted: RunFilter, line: str) -> None:
    """Quotes stand only where the text would mean something else without them."""
    assert written(wanted) == line


@pytest.mark.parametrize(
    ("line", "inserts"),
    [
        ("", ["status:", "repo:", "branch:", "since:", "until:", "is:"]),
        ("st", ["status:"]),
        ("login -s", ["status:", "since:"]),
        ("status:", ["cancelled", "completed", "failed", "queued", "working", "paused"]),
        ("status:fa", ["failed"]),
        ("status:failed,", ["cancelled", "completed", "queued", "working", "paused"]),
        ("repo:ap", ["acme/api"]),
        ("repo:acme", ["acme/web", "acme/api", "acme/*", "gitlab:acme/tools", "gitlab:acme/*"]),
        ("repo:odd", ['"odd\\"o/a b"', 'odd"o/*']),
        ("-branch:ag", ["agent/dark-mode"]),
        ("is:", ["active", "ended", "stuck"]),
        ("since:", ["1h", "24h", "7d", "30d"]),
        ("web", ["repo:acme/web"]),
        ("status:failed", []),
        ('"st', []),
        ("statsu:fa", []),
    ],
)
def test_suggestions_complete_the_piece_at_the_cursor(line: str, inserts: list[str]) -> None:
    """Keys, then what is known for them; what stands there already is none."""
    assert [each.insert for each in suggestions(line, len(line), KNOWN)] == inserts


@given(st.text(alphabet=st.sampled_from('staurepo:,"-\\* /i'), max_size=20), st.data())
def test_a_suggestion_taken_leaves_a_line_that_is_understood(line: str, data: st.DataObject) -> None:
    """It replaces the piece that the cursor touches and nothing else, and makes no new problem but a missing value."""
    cursor = data.draw(st.integers(0, len(line)))
    for suggestion in suggestions(line, cursor, KNOWN):
        after, behind = suggestion.applied(line)

        assert after[behind:] == line[suggestion.end :]
        assert after[: suggestion.start] == line[: suggestion.start]
        assert len(parse(after, NOW).problems) <= len(parse(line, NOW).problems) + 1
