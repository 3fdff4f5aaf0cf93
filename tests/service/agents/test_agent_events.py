"""What an agent says of itself is foreign: no value of it may end the turn's reader."""

import json
from itertools import product

from service.agents.outcome import OutcomeReader, TurnFailure, aider, claude, codex, gemini, goose, opencode

KINDS = ("result", "message", "error", "item.completed", "turn.failed", "text", "complete")
FIELDS = ("type", "errors", "error", "status", "message", "item", "part", "result", "subtype", "role")
VALUES = (5, [5], {"role": "assistant", "content": 5}, {"type": ["agent_message"]}, None)


def test_an_event_of_other_types_than_expected_is_read() -> None:
    """As far as it can be; a reported error stays one."""
    for listener in (claude, codex, gemini, goose, opencode):
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


BANNER = "Aider v0.86.2\nMain model: openai/gpt-4o with diff edit format\nRepo-map: using 4096 tokens, auto refresh\n\n"
COUNTED = "\nTokens: 1.2k sent, 50 received. Cost: $0.0035 message, $0.0035 session.\n"
EDIT = "<<<<<<< SEARCH\n=======\nzebras\n>>>>>>> REPLACE\n"
RETRY = "litellm.InternalServerError: down\nRetrying in 0.2 seconds...\n"


def test_aider_s_last_answer_is_found_among_what_it_prints() -> None:
    """Without its edits, which are in the change."""
    for printed, summary in (
        (f"{BANNER}I looked.\n\nWhich database?\n{COUNTED}", "I looked.\nWhich database?"),
        (f"{BANNER}{RETRY}All done.\n{COUNTED}", "All done."),
        (
            f"{BANNER}I add it.\n\na.txt\n```\n{EDIT}```\n\nGo on?\n{COUNTED}a.txt\nApplied edit\n",
            "I add it.\na.txt\nGo on?",
        ),
        (f"{BANNER}Empty response received from LLM. Check your provider account?\n{COUNTED}", None),
        (f"{BANNER}Half of", None),
    ):
        reader = OutcomeReader(of_line=aider, must_end=True)
        reader.feed(printed.encode())

        assert reader.report.summary == summary
        assert (reader.failure(0) is None) == printed.endswith("\n")


CUT = {"type": "turn.failed", "error": {"message": "Incomplete response returned, reason: max_output_tokens"}}
FAILURES = (
    (
        *(claude, f'Error: {{"request": "{"x" * 600}", "error": {{"message": "It broke."}}}}\n', 1, "failed"),
        "the agent exited with status 1: Error: It broke; its log",
    ),
    (
        *(claude, {"type": "result", "is_error": True, "result": "API Error: Connection error."}, 1),
        *("model_unreachable", "the agent says: API Error: Connection error; check the address of its model, and"),
    ),
    (codex, CUT, 1, "cut_short", "the answer of m-1 was cut at its limit of tokens: Incomplete response returned"),
    (gemini, {"type": "error", "message": json.dumps({"code": "unauthorized"})}, 0, "no_key", "the agent failed; give"),
)


def test_a_program_s_failure_is_told_with_a_cure() -> None:
    """The program's own words come first, without JSON however long it is; of an answer's end the model is named."""
    for listener, event, status, reason, words in FAILURES:
        reader = OutcomeReader(listener)
        reader.feed((event if isinstance(event, str) else json.dumps(event)).encode())
        told = reader.failure(status, None, "m-1")

        assert isinstance(told, TurnFailure)
        assert told.reason == reason
        assert told.text.startswith(words)
