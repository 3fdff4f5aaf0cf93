"""Output of any size: a log keeps its beginning and its end, and what a program says last decides."""

from collections.abc import Callable

from service.agents import outcome
from service.agents.outcome import OutcomeReader
from service.execution.rehearsal import Rehearsal
from service.settings import AgentLimits, ExecutionSettings
from service.store.agents import Agent
from tests.waiting import present


def test_a_log_keeps_the_beginning_and_the_end(
    rehearse: Callable[..., Rehearsal], script: Callable[..., Agent]
) -> None:
    """Half of the limit each, in whole lines, with the number of bytes between them."""
    settings = ExecutionSettings(agent=AgentLimits(output_bytes=8192))
    source = "echo first; yes 'a line' | head -n 100000; echo last"
    long = rehearse(settings=settings).turn(script(source), "go").log
    short = rehearse(settings=settings).turn(script("yes 'a line' | head -n 1000; echo last"), "go").log
    before, _, after = long.partition("bytes were dropped here: a log keeps the first and the last 4096 bytes")

    assert long.startswith("first\na line\n")
    assert after.startswith(" (output_bytes)]\na line\n")
    assert long.endswith("a line\nlast\n")
    assert len(before) < 4200
    assert len(after) < 4200
    assert short == "a line\n" * 1000 + "last\n"


def test_the_last_lines_and_every_event_count_among_millions() -> None:
    """A program that prints a lot before it fails is quoted with its last words; events are found anywhere."""
    noise = b"a line\n" * 50_000
    reader = OutcomeReader()
    for piece in (noise, b"one\n\ntwo\nthr", b"ee\n"):
        reader.feed(piece)
    events = OutcomeReader(outcome.codex, must_end=True)
    for piece in (noise + b'{"type":"turn.comp', b'leted"}\n' + noise, b'{"type": broken\n'):
        events.feed(piece)
    failure = present(reader.failure(3))

    assert "one two three" in failure.text
    assert events.failure(0) is None
