"""Event streams and their tokens: 40 forms of one stream, cut anywhere, read as a reference parser reads them."""

import itertools
import json
import random
import re
from collections.abc import Iterator

import pytest

from service.egress.events import EventStream
from service.egress.usage import Meter, Usage

EVENTS = [
    ("message_start", {"type": "message_start", "message": {"usage": {"input_tokens": 1000, "output_tokens": 1}}}),
    ("content_block_delta", {"type": "content_block_delta", "delta": {"text": 'zwei Wörter\u2028 "usage"'}}),
    ("message_delta", {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 50}}),
    ("message_stop", {"type": "message_stop"}),
]
ENDS = {"LF": "\n", "CR": "\r", "CRLF": "\r\n"}
LAYOUTS = {
    "plain": lambda data: [f"data: {data}"],
    "no blank": lambda data: [f"data:{data}"],
    "several lines": lambda data: [f"data: {line}" for line in data.split("\n")],
    "comments": lambda data: [": keep-alive", f"data: {data}", ":"],
    "other fields": lambda data: ["id: 7", "retry: 10", "unknown: x", "data", f"data: {data}", "data"],
    "several lines, no blank": lambda data: [f"data:{line}" for line in data.split("\n")],
}
TYPES = ["text/event-stream", "Text/Event-Stream; charset=utf-8", "text/plain", "application/json", ""]


def stream(end: str, layout: str, start: str = "") -> bytes:
    lines = []
    for name, document in EVENTS:
        data = json.dumps(document, indent=1 if "several" in layout else None, ensure_ascii=False)
        lines += [f"event: {name}", *LAYOUTS[layout](data), ""]
    return (start + "".join(line + end for line in lines)).encode()


FORMS = {
    f"{end}, {layout}, {name}": stream(ENDS[end], layout, start)
    for end, layout, (name, start) in itertools.product(ENDS, LAYOUTS, [("", ""), ("BOM", "\ufeff")])
}
FORMS["escaped key"] = FORMS["LF, plain, "].replace(b'"usage"', b'"\\u0075sage"')
FORMS["mixed ends"] = FORMS["LF, plain, "].replace(b"\n\n", b"\r\n\r")
FORMS["no blank line at the end"] = FORMS["LF, plain, "].rstrip(b"\n")
FORMS["blank lines at the start"] = b"\r\n\r\n" + FORMS["CRLF, plain, "]


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


def test_tokens_are_counted_in_every_form() -> None:
    """Under any type, and in pieces of any size."""
    for (form, whole), kind, size in itertools.product(FORMS.items(), TYPES, (1, 7, 10_000)):
        meter = Meter(400, kind)
        for at in range(0, len(whole), size):
            meter.feed(whole[at : at + size])

        assert (meter.total(is_complete=True), meter.is_whole) == (Usage(1000, 0, 0, 50), True), (form, kind, size)


JUNK = [b"\r", b"\n", b"\r\n", b"data", b"data:", b"event: error\n", b":", b" ", b"\xef\xbb\xbf", b"\0", b"{", b"\xff"]


@pytest.mark.parametrize("count", [300, pytest.param(5_000, marks=pytest.mark.campaign)])
def test_streams_are_read_as_the_standard_says(count: int) -> None:
    """Mutated forms in pieces: the same events as a reference parser finds, and so the same tokens; seeded."""
    rng = random.Random(44)
    forms = [*FORMS.values()]
    for _ in range(count):
        whole = rng.choice(forms)
        for _ in range(rng.randint(0, 4)):
            at = rng.randint(0, len(whole))
            whole = whole[:at] + rng.choice(JUNK) + whole[at + rng.choice([0, 0, 1, 30]) :]
        parser, meter = EventStream(), Meter(400, rng.choice(TYPES))
        found = []
        for piece in pieces(whole, rng):
            found += parser.feed(piece)
            meter.feed(piece)
        expected = reference(whole)

        assert found == expected, whole
        usage = Usage()
        for _, data in [*expected, *parser.end()]:
            try:
                document = json.loads(data)
            except ValueError:
                continue
            holder = document.get("message", document) if isinstance(document, dict) else {}
            given = holder.get("usage") if isinstance(holder, dict) else None
            counts = [given.get(key, 0) for key in ("input_tokens", "output_tokens")] if isinstance(given, dict) else []
            usage = usage.most(Usage(counts[0], 0, 0, counts[1])) if counts else usage
        counted = meter.total(is_complete=True)
        assert usage in {counted, Usage()}, whole
