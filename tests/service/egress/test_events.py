"""Event streams and their tokens: variants of one stream, cut anywhere, compared with a reference parser."""

import itertools
import json
import random
import re
from collections.abc import Iterator

import pytest

from service.egress.usage import EventStream, Meter, Usage

EVENTS = [
    ("message_start", {"type": "message_start", "message": {"usage": {"input_tokens": 1000, "output_tokens": 1}}}),
    ("content_block_delta", {"type": "content_block_delta", "delta": {"text": 'zwei Wörter\u2028 "usage"'}}),
    ("message_delta", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 50}}),
    ("message_stop", {"type": "message_stop"}),
]
LAYOUTS = {
    "plain": lambda data: [f"data: {data}"],
    "several lines": lambda data: [f"data:{line}" for line in data.split("\n")],
    "other fields": lambda data: [": keep-alive", "id: 7", "unknown: x", "data", f"data: {data}", "data"],
}
TYPES = ["text/event-stream", "Text/Event-Stream; charset=utf-8", "application/json", ""]


def stream(end: str, layout: str, start: str) -> bytes:
    lines = []
    for name, document in EVENTS:
        data = json.dumps(document, indent=1 if "several" in layout else None, ensure_ascii=False)
        lines += [f"event: {name}", *LAYOUTS[layout](data), ""]
    return (start + "".join(line + end for line in lines)).encode()


FORMS = [stream(*form) for form in itertools.product(("\n", "\r", "\r\n"), LAYOUTS, ("", "\ufeff"))]
FORMS += [FORMS[0].replace(b'"usage"', b'"\\u0075sage"'), FORMS[0].replace(b"\n\n", b"\r\n\r"), FORMS[0].rstrip(b"\n")]


def reference(whole: bytes) -> list[tuple[bytes, bytes]]:
    events, name, data = [], b"", []
    for line in re.split(rb"\r\n|\r|\n", whole.removeprefix(b"\xef\xbb\xbf"))[:-1]:
        key, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if not line:
            events += [(name, b"\n".join(data))] if data else []
            name, data = b"", []
        elif key == b"data":
            data.append(value)
        elif key == b"event":
            name = value
    return events


def pieces(whole: bytes, rng: random.Random) -> Iterator[bytes]:
    at = 0
    while at < len(whole):
        size = rng.choice([1, 2, 3, 17, 400])
        yield whole[at : at + size]
        at += size


JUNK = [b"\r", b"\n", b"\r\n", b"data", b"data:", b"event: error\n", b":", b" ", b"\xef\xbb\xbf", b"\0", b"{", b"\xff"]


def counted(whole: bytes, rng: random.Random) -> tuple[list[tuple[bytes, bytes]], Meter]:
    """The events of a stream that comes in pieces, and the meter that read it."""
    parser, meter, found = EventStream(), Meter(400, rng.choice(TYPES)), []
    for piece in pieces(whole, rng):
        found += parser.feed(piece)
        meter.feed(piece)
    return found, meter


@pytest.mark.parametrize("count", [300, pytest.param(5_000, marks=pytest.mark.campaign)])
def test_tokens_are_counted_in_every_event_format(count: int) -> None:
    """Any type and piece size counts the same tokens; randomly mutated streams give the reference parser's events."""
    rng = random.Random(44)
    for whole in FORMS:
        _, meter = counted(whole, rng)

        assert (meter.total(is_complete=True), meter.is_whole) == (Usage(1000, 0, 0, 50), True), whole

    for _ in range(count):
        whole = rng.choice(FORMS)
        for _ in range(rng.randint(0, 4)):
            at = rng.randint(0, len(whole))
            whole = whole[:at] + rng.choice(JUNK) + whole[at + rng.choice([0, 0, 1, 30]) :]

        assert counted(whole, rng)[0] == reference(whole), whole
