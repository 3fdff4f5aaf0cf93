"""Windows over a history that exists only here: every claim is true, and in the end nothing is left."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sync.walk import TICK, reach
from app.sync.windows import Stretch, Window, Windows
from storage.records import CoverageGap, Repository, Run, RunPage

START = datetime(2026, 5, 1, tzinfo=UTC)
WIDER = timedelta(seconds=1)
REPOSITORY = Repository.parse("acme/api")


def run(number: int, created: datetime | None, updated: datetime | None = None) -> Run:
    return Run(f"run_{number:06}", "completed", "main", REPOSITORY, created, updated or created, "{}")


@dataclass
class History:
    """A service's list, newest first, by creation or by the last change; its page tokens are places in it."""

    runs: list[Run]
    size: int = 10
    order: str = "created_at"
    requests: int = 0
    seen: set[str] = field(default_factory=set)

    def page(self, asked: Stretch, token: str | None) -> RunPage:
        self.requests += 1
        start = None if asked.start is None else asked.start - WIDER
        matching = [
            run
            for run in self.runs
            if run.created_at and run.created_at <= asked.end + WIDER and (start is None or run.created_at >= start)
        ]
        matching.sort(key=lambda run: (getattr(run, self.order), run.run_id), reverse=True)
        place = int(token or 0)
        shown = tuple(matching[place : place + self.size])
        self.seen |= {run.run_id for run in shown}
        return RunPage(shown, str(place + self.size) if place + self.size < len(matching) else None)

    def check(self, claimed: Stretch) -> None:
        """Whatever is claimed was shown."""
        missing = [
            run.run_id
            for run in self.runs
            if run.created_at
            and (claimed.start is None or claimed.start <= run.created_at)
            and run.created_at <= claimed.end
            and run.run_id not in self.seen
        ]
        assert missing == []


def fill(history: History, gaps: list[CoverageGap], *, workers: int = 8, seed: int | None = None) -> Iterator[Stretch]:
    """Work the gaps off with so many workers; with a seed their answers come in any order."""
    windows, chance = Windows(gaps, page_size=history.size), random.Random(seed)
    asked: list[tuple[Window, RunPage]] = []
    for _ in count():
        while len(asked) < workers and (window := windows.take()) is not None:
            asked.append((window, history.page(*window.ask())))
        if not asked:
            break
        assert len({id(window) for window, _ in asked}) == len(asked)
        assert_disjoint(windows)
        window, page = asked.pop(0 if seed is None else chance.randrange(len(asked)))
        if (claimed := windows.advance(window, page, reach(page.runs))) is not None:
            history.check(claimed)
            yield claimed
        assert history.requests < 10_000
    assert not windows.open


def assert_disjoint(windows: Windows) -> None:
    for newer, older in pairwise(windows.open):
        assert newer.start is not None
        assert older.end < newer.start


def assert_complete(claims: list[Stretch], gap: CoverageGap) -> None:
    """The claims, put together, are the gap."""
    claims = sorted(claims, key=lambda claim: claim.end, reverse=True)
    assert claims[0].end == gap.before - TICK if gap.before else None
    assert claims[-1].start == (None if gap.after is None else gap.after + TICK)
    for newer, older in pairwise(claims):
        assert newer.start == older.end + TICK


histories = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 3 * 86_400 * 10**6), st.integers(0, 10).map(lambda n: 86_400 * 10**6 + n * 300_000)),
        st.one_of(st.just(0), st.integers(0, 86_400)),
    ),
    max_size=120,
)


orders = st.sampled_from(["created_at", "updated_at"])
starts = st.sampled_from([None, START + timedelta(hours=7)])


@given(histories, st.integers(1, 12), st.integers(1, 8), orders, starts, st.integers(0, 99))
def test_what_windows_claim_is_held_and_in_the_end_they_claim_it_all(
    times: list[tuple[int, int]], size: int, workers: int, order: str, since: datetime | None, seed: int
) -> None:
    """Dense or sparse, in either order, however the answers arrive."""
    runs = []
    for number, (created_us, took_s) in enumerate(times):
        created = START + timedelta(microseconds=created_us)
        runs.append(run(number, created, created + timedelta(seconds=took_s)))
    gap = CoverageGap(since, START + timedelta(days=2))

    claims = list(fill(History(runs, size, order), [gap], workers=workers, seed=seed))

    assert_complete(claims, gap)


def minutely(number: int) -> list[Run]:
    return [run(n, START - timedelta(minutes=n), START - timedelta(minutes=n, seconds=-n % 50)) for n in range(number)]


@pytest.mark.parametrize("since", [START - timedelta(minutes=10_000), None])
def test_windows_cost_little_more_than_the_pages_there_are(since: datetime | None) -> None:
    """10,000 runs of 100 a page are 100 pages; parallel windows ask for less than a quarter more."""
    gap = CoverageGap(since, START + timedelta(minutes=1))
    history = History(minutely(10_000), 100)
    claims = list(fill(history, [gap]))

    assert_complete(claims, gap)
    assert history.requests < 125


def test_the_newest_are_filled_first() -> None:
    """When half of the pages are here, the newest quarter of the gap is complete."""
    gap = CoverageGap(START - timedelta(minutes=20_000), START + timedelta(minutes=1))
    claims = []
    for claim in fill(History(minutely(20_000), 100), [gap]):
        claims.append(claim)
        if len(claims) == 100:
            break
    newest = START + timedelta(minutes=1) - TICK
    for claim in sorted(claims, key=lambda claim: claim.end, reverse=True):
        if claim.end != newest or claim.start is None:
            break
        newest = claim.start - TICK

    assert newest < START - timedelta(minutes=5_000)


def test_a_dense_window_is_split_among_all_workers() -> None:
    """Half of all runs lie in one hour of a month: still most requests have seven beside them."""
    crowd = [run(10_000 + n, START - timedelta(days=9, seconds=n * 0.36)) for n in range(10_000)]
    sparse = [run(n, START - timedelta(minutes=n * 4.3)) for n in range(10_000)]
    windows, busy, requests = Windows([CoverageGap(None, START + TICK)], page_size=100), 0, 0
    history = History(crowd + sparse, 100)
    while windows.open:
        asked: list[Window] = []
        while len(asked) < 8 and (window := windows.take()) is not None:
            asked.append(window)
        busy, requests = busy + (len(asked) == 8), requests + 1
        for window in asked:
            page = history.page(*window.ask())
            windows.advance(window, page, reach(page.runs))

    assert len(history.seen) == 20_000
    assert busy > 0.8 * requests
    assert history.requests < 260


def test_no_window_ends_before_it_begins() -> None:
    """Not even one that is split where runs are less than a microsecond apart."""
    windows = Windows([CoverageGap(START - timedelta(milliseconds=1), START)], page_size=10)
    window = windows.take()
    assert window is not None
    windows.advance(window, RunPage(tuple(run(n, START - TICK) for n in range(10)), "10"), START - 2 * TICK)
    taken = [windows.take(), windows.take(), windows.take()]

    assert all(each is None or each.start is None or each.start <= each.end for each in taken)


def test_one_instant_with_more_runs_than_a_page_is_walked_by_its_token() -> None:
    """Dates cannot part runs of the same second."""
    crowd = [run(n, START - timedelta(minutes=5)) for n in range(1_000)]
    history = History(crowd + minutely(50), 10)
    list(fill(history, [CoverageGap(None, START + TICK)]))

    assert len(history.seen) == 1_000
    assert history.requests < 200
