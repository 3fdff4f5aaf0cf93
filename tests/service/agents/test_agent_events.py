"""What an agent says of itself is foreign: no value of it may end the turn's reader."""

import json
from itertools import product

import pytest

from service.agents.outcome import Listener, OutcomeReader, claude, codex, gemini, goose, opencode

KINDS = ("result", "message", "error", "item.completed", "turn.failed", "text", "complete")
FIELDS = ("type", "errors", "error", "status", "message", "item", "part", "result", "subtype", "role")
VALUES = (5, [5], {"role": "assistant", "content": 5}, {"type": ["agent_message"]}, None)


@pytest.mark.parametrize("listener", [claude, codex, gemini, goose, opencode])
def test_an_event_of_other_types_than_expected_is_read(listener: Listener) -> None:
    """As far as it can be; a reported error stays one."""
    reader = OutcomeReader(listener)
    for kind, field, value in product(KINDS, FIELDS, VALUES):
        event = {"type": kind, "is_error": True, field: value}
        reader.feed(f"{json.dumps(event)}\n".encode())

    reader.feed(b'{"type": "result", "is_error": true, "errors": ["first", 2], "status": "failed"}\n')

    assert listener not in {claude, gemini} or reader.report.error in {"first; 2", "error"}


def test_a_message_in_pieces_keeps_its_blanks() -> None:
    """Gemini CLI cuts its words anywhere."""
    reader = OutcomeReader(gemini)
    for piece in ("Let me", " look.\n", "All", " done."):
        event = {"type": "message", "role": "assistant", "content": piece, "delta": True}
        reader.feed(f"{json.dumps(event)}\n".encode())

    assert reader.report.summary == "Let me look.\nAll done."
