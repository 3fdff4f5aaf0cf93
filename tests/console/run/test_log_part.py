"""The log of a run is read from its end, as far back as is looked at, and on while it grows."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from textual.pilot import Pilot

from app.results import screen_log as log
from app.results.screen_log import LogPart
from app.runs.screen_subject import RunSubject
from storage.records.results import LogStep, Unavailable
from tests.console.run.conftest import LOG, ScriptedResults
from tests.console.scenes import SceneClock
from tests.lab import START
from tests.waiting import until
from tests.widgets.stage import Stage
from widgets.results.log import LogView


class Shown:
    """A log on show, and what its session is told."""

    def __init__(self, results: ScriptedResults) -> None:
        self.clock, self.told = SceneClock(), list[str]()
        session = cast("Any", SimpleNamespace(clock=self.clock, notify=self.told.append))
        self.part = LogPart(RunSubject(session, "run", known_results=cast("Any", results)))
        self.app = Stage(self.part)

    @property
    def text(self) -> str:
        return "\n".join(self.app.lines)

    @property
    def view(self) -> LogView:
        return self.part.query_one(LogView)

    async def press(self, *keys: str) -> None:
        await Pilot(self.app).press(*keys)

    async def shows(self, words: str) -> None:
        await until(lambda: words in self.text, f"the log shows {words}", saw=lambda: self.text)


@pytest.fixture(autouse=True)
def restless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "REST_S", 0.01)
    monkeypatch.setattr(log, "PAUSE_S", 0.01)


@asynccontextmanager
async def log_on_show(results: ScriptedResults) -> AsyncIterator[Shown]:
    shown = Shown(results)
    async with shown.app.run_test(size=(80, 20)):
        shown.part.show()
        shown.part.body.focus()
        yield shown
        shown.part.left()


async def test_what_is_searched_for_is_found_and_no_error_is_guessed() -> None:
    """From its end, and round it. Where the service tells no steps, no line is marked and no key goes to one."""
    async with log_on_show(ScriptedResults()) as shown:
        await shown.shows("403 lines · ended")
        await shown.shows("ERROR: tests failed")
        assert shown.view.follows
        assert "✗" not in shown.text
        assert shown.part.check_action("error", ()) is False
        shown.part.action_search()
        await shown.press(*"step 123", "enter")
        await until(lambda: shown.view.cursor == 123, "the match has the cursor", saw=lambda: shown.view.cursor)
        shown.part.action_step_match(1)
        await until(lambda: shown.told == ["Continued from the other end."])


async def test_times_are_short_and_long_lines_wrap_on_demand() -> None:
    """`i` gives them in full; what is cut off is said, and wrapped the cursor's line is in view to its end."""
    line = b"2026-05-01T12:00:%02d.123456Z step %d " + b"of a long line " * 12 + b"to its end %d\n"
    data = b"".join(line % (n, n, n) for n in range(40))
    async with log_on_show(ScriptedResults(log_=data)) as shown:
        await shown.shows("12:00:39 step 39")
        assert "2026" not in shown.text
        assert shown.app.lines[-1].endswith("→")
        await shown.press("i")
        await shown.shows("2026-05-01T12:00:39.123456Z step 39")
        await shown.press("i", "\\")
        await shown.shows("to its end 39")
        assert "→" not in shown.text
        await shown.press("g")
        await shown.shows("to its end 0")
        await shown.press(*"jjjjj")
        assert "to its end 5" in shown.text
        await Pilot(shown.app).click(LogView, offset=(10, 4))
        assert f"12:00:{shown.view.cursor:02} " in shown.text
        await shown.press("\\")
        await until(lambda: shown.app.lines[-1].endswith("→"))


async def test_a_long_one_is_read_where_it_is_looked_at() -> None:
    """At its end; a search goes on where nothing was read yet, and `g` reads it all."""
    data = b"needle\n" + LOG * 100
    lines = data.count(b"\n")
    for find in ("search", "first"):
        async with log_on_show(ScriptedResults(log_=data)) as shown:
            await until(lambda shown=shown: 0 < shown.view.total < lines / 2, "not all of the log is read")
            await shown.shows("lines of 1.8 MB")
            if find == "search":
                shown.part.action_search()
                await shown.press(*"needle", "enter")
                await until(lambda shown=shown: (shown.view.total, shown.view.cursor) == (lines, 0))
            else:
                await shown.press("g")
                await shown.shows("needle")
                await shown.press("G")
                await until(lambda shown=shown: shown.view.follows and "retrying" in shown.app.lines[-1])


async def test_one_that_grows_is_followed_and_one_that_shrinks_is_read_again() -> None:
    """Without output for a while, that is said; so are an empty log and a service that does not answer."""
    results = ScriptedResults(ended=False, log_=b"")
    async with log_on_show(results) as shown:
        await shown.shows("The log is empty so far.")
        results.log_ += b"first\n"
        await shown.shows("following")
        shown.part.tick(shown.clock() + timedelta(seconds=12))
        await shown.shows("waiting for output 12s")
        results.log_ += b"second\n"
        await shown.shows("second")
        results.log_ = Unavailable("No answer.")
        await shown.shows("No answer.")
        results.log_ = b"other\n"
        await shown.shows("other")
        assert shown.told == ["The log was replaced by another one."]
        results.ended = True
        await shown.shows("ended")


def told(number: int) -> tuple[LogStep, ...]:
    """The steps of a log: so many commands, and hostile words between them."""
    words = LogStep("said", "Let me\x1b[2J look at \u202eit.\n" + "word " * 60)
    return tuple(
        step
        for n in range(number)
        for step in (
            *((words,) if n % 10 == 9 else ()),
            LogStep("ran", f"step {n}", START, f"c{n}"),
            LogStep(
                "result", "no" if n == number - 2 else "", START + timedelta(seconds=n), f"c{n}", failed=n == number - 2
            ),
        )
    )


async def test_a_conversation_is_shown_where_the_service_tells_its_steps() -> None:
    """Wrapped for the view, with a key for the log as it is; what failed is found as an error."""
    results = ScriptedResults(steps_=told(10))
    async with log_on_show(results) as shown:
        await shown.shows("ran       step 9")
        assert "said      Let me␛[2J look at \ufffdit." in shown.text
        assert max(len(line) for line in shown.app.lines if "word" in line) <= 80
        assert "result    7.0s" in shown.text
        await shown.press("!")
        await until(
            lambda: "✗ FAILED    no  (8.0s)" in shown.app.lines[shown.view.cursor + 1 - shown.view.scroll_offset.y],
            "the failed step has the cursor",
        )
        await Pilot(shown.app).resize_terminal(50, 20)
        await until(lambda: all(len(line) <= 50 for line in shown.app.lines), "the lines fit 50 columns")
        await shown.shows("said      Let me")
        await shown.press("i")
        await shown.shows("step 399 of the build")
        await shown.press("i")
        await shown.shows("step 9")
        results.log_, results.steps_ = LOG, None
        shown.part.subject.turn = 7
        shown.part.show()
        await shown.shows("step 399 of the build")
        assert shown.part.check_action("error", ()) is False


async def test_a_long_conversation_is_read_where_it_is_looked_at() -> None:
    """From its end on; followed, only what is new is asked for."""
    results = ScriptedResults(steps_=told(300), ended=False)
    async with log_on_show(results) as shown:
        await shown.shows("step 299")
        assert shown.view.total < 400
        await shown.press("g")
        await shown.shows("step 0")
        assert [step for step in range(300) if shown.view.find(re.compile(rb"step %d\b" % step), 0, 1) is None] == []
        size = 10 * len(results.steps_ or ())
        results.steps_ = (*(results.steps_ or ()), LogStep("said", "And more."))
        await shown.press("G")
        await shown.shows("And more.")
        assert {offset for _, _, offset in results.asked[-2:]} <= {size, size + 10}
