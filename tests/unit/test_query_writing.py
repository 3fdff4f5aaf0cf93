"""A filter as text and back; suggestions of the language; a line that is changed, or read while it is typed."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.runs.query import Vocabulary, listed, parse, suggestions
from app.runs.query.terms import KeyName
from app.runs.screen_views import as_typed, replaced
from storage.records import RunFilter
from storage.records.query import FINDINGS

NOW = datetime(2026, 5, 4, 12, 30, tzinfo=UTC)
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


def test_written_values_are_as_plain_as_they_can_be() -> None:
    """Quotes are written only where the text would mean something else without them."""
    assert [*listed("status", ("failed",))] == ["status:failed"]
    assert [*listed("branch", (), ("agent/*",))] == ["-branch:agent/*"]
    assert [*listed("repo", ("acme/api", "api"))] == ['repo:acme/api,"api"']


@pytest.mark.parametrize(
    ("line", "inserts"),
    [
        ("", ["status:", "repo:", "branch:", "agent:", "finding:", "since:", "until:", "is:"]),
        ("st", ["status:"]),
        ("login -s", ["status:", "since:"]),
        ("status:", ["cancelled", "completed", "failed", "queued", "working", "paused"]),
        ("status:failed,", ["cancelled", "completed", "queued", "working", "paused"]),
        ("repo:ap", ["acme/api"]),
        ("repo:acme", ["acme/web", "acme/api", "acme/*", "gitlab:acme/tools", "gitlab:acme/*"]),
        ("repo:odd", ['"odd\\"o/a b"', 'odd"o/*']),
        ("-branch:ag", ["agent/dark-mode"]),
        ("-finding:n", ["note", "none", "minor", "any", "unknown"]),
        ("is:", ["active", "ended", "stuck", "followed"]),
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


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
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
    ],
)
def test_what_is_begun_counts_as_far_as_it_goes(line: str, wanted: RunFilter) -> None:
    """A line that is being typed never empties the table for want of its last letters, and is not called wrong."""
    query = parse(as_typed(line, len(line)), NOW)

    assert query.filter == wanted
    assert not query.problems


@given(st.text(alphabet=" -:,*abstu/7d", max_size=30), st.integers(0, 30))
def test_only_the_piece_at_the_cursor_is_read_differently(line: str, cursor: int) -> None:
    """Behind a blank, the line means what it says."""
    assert parse(as_typed("stauts:failed", 13), NOW).problems, "no further letter can correct it"
    assert parse(as_typed(f"{line} ", len(line) + 1), NOW) == parse(f"{line} ", NOW)
    assert isinstance(as_typed(line, min(cursor, len(line))), str)
