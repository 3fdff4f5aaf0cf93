"""A run's log is read from its end, backwards as far as the user scrolls, and forwards while it grows."""

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
from tests.console.scenes import NOW
from tests.lab import START, Clock
from tests.waiting import until
from tests.widgets.stage import Stage
from widgets.results.log import LogView


class Shown:
    """A log on the screen, and what its session was told."""

    def __init__(self, results: ScriptedResults) -> None:
        self.clock, self.told = Clock(NOW), list[str]()
        session = cast("Any", SimpleNamespace(clock=self.clock, notify=self.told.append))
        self.part = LogPart(RunSubject(session, "run", cast("Any", results)))
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
        shown.part.stop_reading()


async def test_a_log_search_wraps_around_and_no_error_is_guessed() -> None:
    """A search starts at the end and wraps around. Without steps from the service, no line is marked as an error."""
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


async def test_only_the_visible_part_of_a_long_log_is_read() -> None:
    """The log starts at its end; a search continues into parts that were not read yet."""
    data = b"needle\n" + LOG * 100
    lines = data.count(b"\n")
    async with log_on_show(ScriptedResults(log_=data)) as shown:
        await until(lambda: 0 < shown.view.total < lines / 2, "not all of the log is read")
        await shown.shows("lines of 1.8 MB")
        shown.part.action_search()
        await shown.press(*"needle", "enter")
        await until(lambda: (shown.view.total, shown.view.cursor) == (lines, 0))


async def test_a_growing_log_is_followed_and_a_shrunk_one_read_again() -> None:
    """The view says when there is no output for a while, the log is empty, or the service does not answer."""
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
    """The steps of a log: this many commands, with hostile words between them."""
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


async def test_a_log_with_steps_is_shown_as_a_conversation() -> None:
    """Steps are wrapped for the view, a key shows the raw log, and failed steps are found as errors."""
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
        await shown.press("i")
        await shown.shows("step 399 of the build")
