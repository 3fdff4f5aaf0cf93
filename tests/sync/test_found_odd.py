"""One odd run does not blank the page: what can be read is kept, the odd field is shown as received."""

from datetime import timedelta
from typing import Any

import pytest

from tests.sync.conftest import Desk
from tests.sync.odd import HOSTS, ODD, TOTALS, UNIDENTIFIED

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_an_odd_run_is_shown_with_the_others(desk: Desk, odd: dict[str, Any]) -> None:
    """Live and from the cache, each field as it came."""
    desk.peer.fill(5)
    desk.peer.put("run_odd", **{name: value for name, value in odd.items() if name not in {"status", "run_id"}})
    desk.peer.runs["run_odd"].fields.update(odd)
    expected = [desk.peer.document(run) for run in desk.peer.runs.values()]

    assert desk.poll() == [None]
    for source in ([], ["--cached"]):
        runs = desk.facts("runs", "list", *source)["runs"]
        shown = [{name: value for name, value in run.items() if name != "observed"} for run in runs]
        assert sorted(shown, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize("odd", UNIDENTIFIED.values(), ids=UNIDENTIFIED)
def test_a_run_without_an_id_is_counted(desk: Desk, odd: dict[str, Any]) -> None:
    """It cannot be kept; the list says that one was dropped."""
    desk.peer.fill(5)
    desk.peer.put("run_odd")
    desk.peer.runs["run_odd"].fields.update(odd)
    document = desk.facts("runs", "list")

    assert len(document["runs"]) == 5
    assert document["dropped"] == 1


def test_pages_of_runs_without_an_id_do_not_end_the_list(desk: Desk) -> None:
    """What lies below them is fetched."""
    desk.peer.largest_page = 3
    desk.peer.fill(5, until=desk.peer.now - HOUR)
    for n in range(9):
        desk.peer.put(f"run_odd_{n}")
        desk.peer.runs[f"run_odd_{n}"].fields.update(run_id=None)
    document = desk.facts("runs", "list", "--all")

    assert (len(document["runs"]), document["dropped"]) == (5, 9)


def test_the_cache_remembers_what_was_dropped(desk: Desk) -> None:
    """What the last poll could not keep is said without the network, until a poll keeps everything."""
    desk.peer.fill(5)
    desk.peer.nulls = 2
    desk.poll()
    before = desk.facts("runs", "list", "--cached")
    desk.peer.nulls = 0
    desk.poll()

    assert before["dropped"] == 2
    assert "dropped" not in desk.facts("runs", "list", "--cached")


def test_people_are_told_of_what_was_dropped(desk: Desk) -> None:
    """Beside the table."""
    desk.peer.fill(5)
    desk.peer.nulls = 2
    result = desk.run("runs", "list")

    assert result.code == 0
    assert "2" in result.err


@pytest.mark.parametrize("count", TOTALS)
def test_an_odd_total(desk: Desk, count: Any) -> None:
    """Nothing depends on `total_count`."""
    desk.peer.fill(5)
    desk.peer.total_count = count

    assert len(desk.facts("runs", "list")["runs"]) == 5


@pytest.mark.parametrize("odd", HOSTS)
def test_an_odd_code_host(desk: Desk, odd: Any) -> None:
    """The others are shown, and it is among them."""
    desk.peer.health = {"code_hosting": {"gitlab": {"status": "healthy"}, "github": odd}}
    result = desk.run("health", "--json")

    assert result.code in {0, 1, 2}
    assert '"gitlab"' in result.out
    assert '"github"' in result.out
