"""Properties of the run list that single requests cannot show (spec 2.5, 4.2)."""

import base64
import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.conformance.conftest import Subject

UNTIL = "2025-06-01T00:00:00Z"
SPAN_S = 4
RUNS = 150
INSERTIONS = 4
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEWEST = (datetime(2025, 6, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
# Examples share one history on purpose, and each makes several requests.
SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
SEEDS = itertools.count(1000)
Run = dict[str, Any]


@pytest.fixture(scope="module")
def history(subject: Subject) -> Iterator[list[Run]]:
    """150 runs within four seconds of the past, newest first, so that date bounds fall between them."""
    subject.order("/runs", {"organization": "acme", "runs": RUNS, "span": f"{SPAN_S}s", "until": UNTIL, "active": 20})
    yield walk(subject, 100, {"date_to": UNTIL})
    subject.order("/reset", {})


def walk(subject: Subject, size: int, filters: dict[str, str], between: Callable[[], None] | None = None) -> list[Run]:
    """Return the pages' runs in order; `between` is called after each of the first pages."""
    found: list[Run] = []
    token: str | None = None
    for number in itertools.count():
        answer = subject.runs(page_size=size, page_token=token, **filters)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert len(page["runs"]) <= page["page_size"] == size
        found += page["runs"]
        token = page["next_token"]
        if token is None:
            break
        assert len(page["runs"]) == size, "only the last page may be short"
        if between is not None and number < INSERTIONS:
            between()
    return found


def named(run: Run) -> str:
    data = run["repository"]["data"]
    return str(data.get("project_path") or f"{data['owner']}/{data['repo']}")


def micros(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


@settings(max_examples=4, suppress_health_check=SHARED)
@given(
    size=st.integers(1, 100),
    status=st.sampled_from([None, "completed", "failed", "working", "sleeping"]),
    place=st.integers(-1, RUNS - 1),
)
def test_pages_partition_the_filtered_set_while_others_insert(
    subject: Subject, history: list[Run], size: int, status: str | None, place: int
) -> None:
    """Each matching run is on exactly one page, newest first, even if runs are inserted between the pages."""
    assume(size > 2 or status is not None or place >= 0)
    repository = None if place < 0 else named(history[place])
    chosen = {"status": status, "repository": repository, "date_to": UNTIL}
    filters = {key: value for key, value in chosen.items() if value is not None}
    before = [run["run_id"] for run in history if status in {None, run["status"]} and repository in {None, named(run)}]

    def insert() -> None:
        """Insert old runs into the walked span, and an accepted run at the present."""
        order = {"organization": "acme", "runs": 3, "span": "2s", "until": UNTIL, "seed": next(SEEDS)}
        subject.order("/runs", order)
        body = {"repository": "acme/api", "inputs": {"instructions": "nothing"}}
        assert subject.http.post("/external/agents/scribe/runs", json=body).status_code == 201

    found = walk(subject, size, filters, insert)

    ids = [run["run_id"] for run in found]
    assert len(ids) == len(set(ids))
    assert [one for one in ids if one in set(before)] == before
    keys = [(run["created_at"], run["run_id"]) for run in found]
    assert keys == sorted(keys, reverse=True)
    assert all(status in {None, run["status"]} and repository in {None, named(run)} for run in found)


@st.composite
def bounds(draw: st.DrawFn) -> tuple[int, str, int]:
    """Draw an instant (0 or less: a run's own), digits beyond the microsecond, and an offset."""
    instants = st.integers(NEWEST - (SPAN_S + 1) * 1_000_000, NEWEST + 1_000_000)
    instant = draw(st.one_of(instants, st.integers(0, RUNS - 1).map(lambda place: -place)))
    beyond = draw(st.one_of(st.just(""), st.text("0123456789", min_size=1, max_size=4)))
    return instant, beyond, draw(st.integers(-23 * 60 - 59, 23 * 60 + 59))


def written(drawn: tuple[int, str, int], history: list[Run]) -> tuple[str, Fraction]:
    """Return the text of a drawn bound, and its exact time in microseconds."""
    instant, beyond, minutes = drawn
    if instant <= 0:
        instant = micros(history[-instant]["created_at"])
    local = (EPOCH + timedelta(microseconds=instant)).astimezone(timezone(timedelta(minutes=minutes)))
    text = local.isoformat(timespec="microseconds")
    place = text.index(".") + 7
    return text[:place] + beyond + text[place:], instant + Fraction(int(beyond or 0), 10 ** len(beyond))


@settings(max_examples=10, suppress_health_check=SHARED)
@given(start=st.none() | bounds(), end=bounds())
def test_date_bounds_are_inclusive_and_exact(
    subject: Subject, history: list[Run], start: tuple[int, str, int] | None, end: tuple[int, str, int]
) -> None:
    """A range includes both bounds exactly, whatever the offset and the number of digits."""
    text, last = written(end, history)
    filters, first = {"date_to": text}, Fraction(0)
    if start is not None:
        filters["date_from"], first = written(start, history)
    expected = {run["run_id"] for run in history if first <= micros(run["created_at"]) <= last}
    found = {run["run_id"] for run in walk(subject, 100, filters)}

    assert found & {run["run_id"] for run in history} == expected
    assert first <= last or found == set()


@settings(max_examples=10, suppress_health_check=SHARED)
@given(data=st.data(), place=st.integers(1, 99))
def test_a_cursor_that_was_tampered_with_is_refused(
    subject: Subject, history: list[Run], data: st.DataObject, place: int
) -> None:
    """A changed bit, an extra or missing character, or another spelling of the same bytes gives a 400."""
    token = subject.runs(page_size=place, date_to=UNTIL).json()["next_token"]
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    at, bit = data.draw(st.integers(0, len(token) - 1)), data.draw(st.integers(0, len(raw) * 8 - 1))
    letter = data.draw(st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/ "))
    flipped = bytes(byte ^ (1 << bit % 8) * (number == bit // 8) for number, byte in enumerate(raw))
    spellings = (token[:at] + letter + token[at + 1 :], token[:at] + letter + token[at:], token[:at], f"{token}=")
    forged = data.draw(st.sampled_from((base64.urlsafe_b64encode(flipped).rstrip(b"=").decode(), *spellings)))
    assume(forged != token)
    answer = subject.runs(page_size=place, date_to=UNTIL, page_token=forged)

    assert (answer.status_code, answer.json()["error_code"]) == (400, "invalid_page_token")
    assert subject.runs(page_size=place, date_to=UNTIL, page_token=token).status_code == 200


def test_a_cursor_belongs_to_its_filters(subject: Subject, history: list[Run]) -> None:
    """A cursor continues with the same filters in any page size, and is refused with others."""
    filters = ({}, {"status": "completed"}, {"repository": "acme/api"}, {"date_from": "2025-05-01T00:00:00Z"})
    for mine in filters:
        token = subject.runs(page_size=1, date_to=UNTIL, **mine).json()["next_token"]
        for other in filters:
            answer = subject.runs(page_size=7, date_to=UNTIL, page_token=token, **other)
            assert answer.status_code == (200 if mine == other else 400), (mine, other)
