"""The log of a run is read from its end, as far back as is looked at, and on while it grows."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

from textual.pilot import Pilot

from app.results import screen_log as log
from app.results.screen_log import LogPart
from app.runs.screen_subject import RunSubject
from storage.records.results import LogStep, Unavailable
from tests.console.run.conftest import LOG, NOTHING, ScriptedResults
from tests.console.scenes import SceneClock
from tests.lab import START
from tests.waiting import until
from tests.widgets.stage import Stage
from widgets.results.log import LogView


class QuietSession:
    """What a part needs of a session."""

    def __init__(self) -> None:
        self.clock = SceneClock()
        self.told: list[str] = []

    def notify(self, text: str) -> None:
        self.told.append(text)


class Shown:
    """A log on show."""

    def __init__(self, app: Stage, pilot: Pilot[None], part: LogPart, session: QuietSession) -> None:
        self.app, self.pilot, self.part, self.session = app, pilot, part, session
        self.view = part.query_one(LogView)

    async def shows(self, words: str) -> None:
        await until(
            lambda: words in "\n".join(self.app.lines), f"the log shows {words}", saw=lambda: "\n".join(self.app.lines)
        )


@asynccontextmanager
async def log_on_show(results: ScriptedResults, monkeypatch: Any) -> AsyncIterator[Shown]:
    monkeypatch.setattr(log, "REST_S", 0.01)
    monkeypatch.setattr(log, "PAUSE_S", 0.01)
    session = QuietSession()

    part = LogPart(RunSubject(cast("Any", session), "run", known_results=cast("Any", results)))
    app = Stage(part)
    async with app.run_test(size=(80, 20)) as pilot:
        part.show()
        part.body.focus()
        yield Shown(app, pilot, part, session)
        part.rest()


async def test_what_is_searched_for_is_found_and_no_error_is_guessed(monkeypatch: Any) -> None:
    """From its end, and round it. Where the service tells no steps, no line is marked and no key goes to one."""
    async with log_on_show(ScriptedResults(), monkeypatch) as shown:
        await shown.shows("403 lines · ended")
        await shown.shows("ERROR: tests failed")
        assert shown.view.follows
        assert "✗" not in "\n".join(shown.app.lines)
        assert shown.part.check_action("error", ()) is False
        shown.part.action_search()
        await shown.pilot.press(*"step 123", "enter")
        await until(lambda: shown.view.cursor == 123, "the match has the cursor", saw=lambda: shown.view.cursor)
        shown.part.action_step_match(1)
        await until(lambda: shown.session.told == ["Continued from the other end."])


async def test_times_are_short_and_long_lines_wrap_on_demand(monkeypatch: Any) -> None:
    """`i` gives them in full; what is cut off is said, and wrapped the cursor's line is in view to its end."""
    line = b"2026-05-01T12:00:%02d.123456Z step %d " + b"of a long line " * 12 + b"to its end %d\n"
    data = b"".join(line % (n, n, n) for n in range(40))
    async with log_on_show(ScriptedResults(log_=data), monkeypatch) as shown:
        await shown.shows("12:00:39 step 39")
        assert "2026" not in "\n".join(shown.app.lines)
        assert shown.app.lines[-1].rstrip().endswith("→")
        await shown.pilot.press("i")
        await shown.shows("2026-05-01T12:00:39.123456Z step 39")
        await shown.pilot.press("i", "\\")
        await shown.shows("to its end 39")
        assert "→" not in "\n".join(shown.app.lines)
        await shown.pilot.press("k", "k")
        assert shown.view.cursor == 37
        await shown.pilot.press("g")
        await shown.shows("to its end 0")
        for number in range(40):
            assert f"to its end {number}" in "\n".join(shown.app.lines)
            await shown.pilot.press("j")
        await shown.pilot.press("pageup")
        first = shown.view.cursor
        await shown.shows(f"to its end {first}")
        await shown.pilot.click(LogView, offset=(10, 4))
        assert f"12:00:{shown.view.cursor:02} " in "\n".join(shown.app.lines)
        await shown.pilot.press("\\")
        await until(lambda: shown.app.lines[-1].rstrip().endswith("→"))


async def test_a_long_one_is_read_where_it_is_looked_at(monkeypatch: Any) -> None:
    """At its end; a search goes on where nothing was read yet, and `g` reads it all."""
    data = b"needle\n" + LOG * 100
    lines = data.count(b"\n")
    results = ScriptedResults(log_=data)
    async with log_on_show(results, monkeypatch) as shown:
        await until(lambda: 0 < shown.view.total < lines / 2, "the end of the log is read, not all of it")
        await shown.shows("lines of 1.8 MB")
        shown.part.action_search()
        await shown.pilot.press(*"needle", "enter")
        await until(lambda: shown.view.total == lines and shown.view.cursor == 0, "the first line is found")
    async with log_on_show(results, monkeypatch) as shown:
        await until(lambda: 0 < shown.view.total < lines / 2, "the end of the log is read, not all of it")
        await shown.pilot.press("g")
        await shown.shows("needle")
        await shown.pilot.press("G")
        await until(lambda: shown.view.follows and "retrying" in shown.app.lines[-1])


async def test_one_that_grows_is_followed_and_one_that_shrinks_is_read_again(monkeypatch: Any) -> None:
    """Without output for a while, that is said; so is a service that does not answer."""
    results = ScriptedResults(ended=False, log_=b"first\n")
    async with log_on_show(results, monkeypatch) as shown:
        await shown.shows("following")
        shown.part.tick(shown.session.clock() + timedelta(seconds=12))
        await shown.shows("waiting for output 12s")
        results.log_ += b"second\n"
        await shown.shows("second")
        results.log_ = Unavailable("No answer.")
        await shown.shows("No answer.")
        results.log_ = b"other\n"
        await shown.shows("other")
        assert shown.session.told == ["The log was replaced by another one."]
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


async def test_a_conversation_is_shown_where_the_service_tells_its_steps(monkeypatch: Any) -> None:
    """Wrapped for the view, with a key for the log as it is; what failed is found as an error."""
    results = ScriptedResults(steps_=told(10))
    async with log_on_show(results, monkeypatch) as shown:
        await shown.shows("ran       step 9")
        screen = "\n".join(shown.app.lines)
        assert "said      Let me␛[2J look at \ufffdit." in screen
        assert max(len(line.rstrip()) for line in shown.app.lines if "word" in line) <= 80
        assert "result    7.0s" in screen
        await shown.pilot.press("!")
        await until(
            lambda: "✗ FAILED    no  (8.0s)" in shown.app.lines[shown.view.cursor + 1 - shown.view.scroll_offset.y],
            "the failed step has the cursor",
        )
        await shown.pilot.resize_terminal(50, 20)
        await until(lambda: all(len(line.rstrip()) <= 50 for line in shown.app.lines), "the lines fit 50 columns")
        await shown.shows("said      Let me")
        assert max(len(line.rstrip()) for line in shown.app.lines if "word" in line) <= 50
        await shown.pilot.press("i")
        await shown.shows("step 399 of the build")
        await shown.pilot.press("i")
        await shown.shows("step 9")
        results.log_, results.steps_ = LOG, None
        shown.part.subject.turn = 7
        shown.part.show()
        await shown.shows("step 399 of the build")
        assert shown.part.check_action("error", ()) is False


async def test_a_long_conversation_is_read_where_it_is_looked_at(monkeypatch: Any) -> None:
    """From its end on; followed, only what is new is asked for."""
    results = ScriptedResults(steps_=told(300), ended=False)
    async with log_on_show(results, monkeypatch) as shown:
        await shown.shows("step 299")
        assert shown.view.total < 400
        await shown.pilot.press("g")
        await shown.shows("step 0")
        assert [step for step in range(300) if shown.view.find(re.compile(rb"step %d\b" % step), 0, 1) is None] == []
        size = 10 * len(results.steps_ or ())
        results.steps_ = (*(results.steps_ or ()), LogStep("said", "And more."))
        await shown.pilot.press("G")
        await shown.shows("And more.")
        assert {offset for _, _, offset in results.asked[-2:]} <= {size, size + 10}


async def test_without_a_log_the_reason_is_shown(monkeypatch: Any) -> None:
    """And an empty one is said to be empty."""
    results = ScriptedResults(log_=Unavailable(NOTHING))
    async with log_on_show(results, monkeypatch) as shown:
        await shown.shows("No log to show.")
        results.log_, results.ended = b"", False
        shown.part.subject.turn = 7
        shown.part.show()
        await shown.shows("The log is empty so far.")
