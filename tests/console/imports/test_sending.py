"""The sending of an import without its screen: each state, and what leads out of it."""

from typing import Any, cast

import pytest

from app.actions.import_file import ImportRow
from app.actions.imports import Import
from app.console.organizations.import_state import Sending


def at_work(most: int | None = None, sent: int = 0) -> Import:
    """An import that asks no service."""
    return Import(cast("Any", None), cast("Any", None), most=most, sent=sent)


@pytest.fixture
def sending() -> Sending:
    """Three rows that can be sent."""
    sending = Sending()
    sending.read("partners.csv")
    sending.rows.load([ImportRow(line, f"p{line}@example.com") for line in (2, 3, 4)])
    sending.rows.update([])
    return sending


def remark(sending: Sending, most: int = 50) -> str:
    """What is said of it."""
    return sending.remark(most, read_only=False)[0]


def test_a_question_is_taken_back_once(sending: Sending) -> None:
    """Asked, it says how many people that concerns; taken back, how many there are to create."""
    sending.ask()
    assert remark(sending, most=1) == "^s again creates 1 of 3 organizations and invites 1 person; esc cancels."

    assert [sending.cancel(), sending.cancel()] == [True, False]
    assert remark(sending) == "^s creates 3 organizations."


def test_another_file_takes_the_question_back(sending: Sending) -> None:
    """The next press must not send rows that were asked of another file, or of an older state of this one."""
    sending.ask()
    sending.read("partners.csv")

    assert not sending.is_asked


def test_a_stop_ends_the_sending_it_was_meant_for(sending: Sending) -> None:
    """The row on its way is the last; a stop before there is anything to stop, or after, is forgotten."""
    sending.stop()
    sending.begin()
    work, sent = at_work(), []
    for row in sending.pending(work):
        sent.append(row.line)
        sending.stop()
    assert (sent, sending.is_under_way) == ([2], True)

    sending.end(work)
    assert (sending.is_under_way, remark(sending)) == (False, "Stopped. ^s goes on with 2 organizations.")
    sending.begin()
    assert [row.line for row in sending.pending(at_work())] == [3, 4]


def test_as_many_are_sent_as_may_be(sending: Sending) -> None:
    """Then it says how many those were, and is not complete."""
    sending.begin()
    work = at_work(most=2)
    for _ in sending.pending(work):
        work.sent += 1
    sending.end(work)

    assert remark(sending) == "2 were sent, as many as may be at once. ^s goes on with the next."
    assert not sending.is_complete


def test_the_cursor_goes_along_until_a_person_takes_it_elsewhere(sending: Sending) -> None:
    """From the first row on, wherever it was before; the next sending takes it along again."""
    sending.begin()
    moves = [sending.move_cursor(line, here=here) for line, here in ((2, 9), (3, 2), (4, 2))]
    assert moves == [True, True, False]

    sending.end(at_work())
    assert sending.move_cursor(2, here=9)
