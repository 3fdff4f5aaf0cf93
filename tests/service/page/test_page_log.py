"""The log on the page: how hostile output is shown, and how a live one is followed line by line."""

import html
import re
from collections.abc import Callable
from typing import Any

import pytest

from service.clock import now_micros
from service.settings import DataFolder
from service.store import runs, turns
from service.store.database import Database
from service.store.turns import TurnOutcome
from tests.service.conftest import Api, Make, order
from tests.service.page.test_page import SCRIPT, Browser, text_of
from tests.waiting import present

Log = Callable[..., tuple[Browser, str]]


@pytest.fixture
def logged(idle: Api, tenant: Make, database_of_idle: Database) -> Log:
    """`logged(data)` is a browser and the address of an ended turn's log with these bytes."""

    def make(data: bytes, *, is_ended: bool = True) -> tuple[Browser, str]:
        mine = tenant(on=idle.service)
        with database_of_idle.write() as connection:
            run = runs.accept(connection, order(mine.organization["id"]), now_micros())
            turns.claim(connection, run.id, 1, "w", now_micros())
            if is_ended:
                turns.end(connection, run.id, 1, TurnOutcome("completed"), now_micros())
        file = DataFolder(idle.service.data_dir).turn_file(run.id, 1, "log")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        browser = Browser(idle.service.base_url)
        browser.sign_in(mine.token)
        return browser, f"/runs/{run.id}/log"

    return make


def numbered(answer: Any) -> dict[int, str]:
    """The lines of a log's page by number, with their text."""
    assert answer.status_code == 200, answer.text
    assert len(answer.content) < 50_000
    row = r'<a id="L(\d+)" href="\?line=\1#L\1">\1</a>(?:<span[^>]*>\w+</span> )?<pre>(.*?)</pre>'
    rows = re.findall(row, answer.text, re.DOTALL)
    return {int(number): html.unescape(re.sub(r"<[^>]+>", "", words)) for number, words in rows}


@pytest.mark.parametrize(
    "data",
    [
        b"\n" * 300_000,
        f"{SCRIPT}\u202e\u2066\x1b]8;;https://x.example\x07\x1b[31".encode() * 10_000,
    ],
    ids=["many", "hostile"],
)
def test_any_output_gives_a_valid_log_page(logged: Log, data: bytes) -> None:
    """Each page and search result is small, quick and plain text, whatever an agent printed."""
    browser, log = logged(data + b"\xff\0\nthe end")
    for query in ("", "?line=1", "?before=2", "?find=%3Cscript%3E", f"?find={'x' * 3000}y"):
        shown = browser.get(log + query)
        numbered(shown)
        body = shown.text.split("</h1>")[1]
        assert not [one for one in (SCRIPT, "\u202e", "\u2066", "\x1b", "\x07", "\0") if one in body], query
    assert "the end" in text_of(browser.get(f"{log}?find=THE+END"))


def test_a_live_log_grows_by_whole_lines(logged: Log, idle: Api, database_of_idle: Database) -> None:
    """New lines continue the numbers; an incomplete line waits, and the end is reported."""
    browser, log = logged("one\ntwö".encode(), is_ended=False)
    shown = browser.get(log)
    assert numbered(shown) == {1: "one"}
    follow = present(re.search(r'data-log="([^"]+)" data-offset="(\d+)" data-line="(\d+)"', shown.text))
    assert follow.groups()[1:] == ("4", "2")
    run_id = log.split("/")[2]
    with DataFolder(idle.service.data_dir).turn_file(run_id, 1, "log").open("ab") as file:
        file.write(f"\n{SCRIPT}\nfo".encode())
    more = browser.get(f"{follow[1]}?offset={follow[2]}&line={follow[3]}")
    assert numbered(more) == {2: "twö", 3: SCRIPT}
    assert SCRIPT not in more.text
    headers = [more.headers[f"Runwarden-Log-{name}"] for name in ("Next", "Line", "Grown")]
    assert headers == [str(4 + len("twö\n".encode()) + len(SCRIPT) + 1), "4", "more"]
    with database_of_idle.write() as connection:
        turns.end(connection, run_id, 1, TurnOutcome("completed"), now_micros())
    last = browser.get(f"{follow[1]}?offset={headers[0]}&line=4")
    assert (numbered(last), last.headers["Runwarden-Log-Grown"]) == ({4: "fo"}, "over")
