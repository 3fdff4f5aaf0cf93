"""A turn's log on the page: lines with numbers, or the steps of a known program; searching and following it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from service.agents.options import PresetName
from service.agents.steps import MAX_LINE, Step, complete_bytes, steps_of
from service.api import results
from service.api.context import RequestContext
from service.page.site import HEADERS, page
from service.page.text import cut, plain, terminal
from service.page.visitor import Anybody, RunReader
from service.store.turn_files import MAX_LOG
from service.text import printable

_PAGE_BYTES: Final = 38 << 10
_ROW_BYTES: Final = 90
"""The approximate size of a row without its text."""
_STEP: Final = 8000
"""Characters that are shown of a step."""
_MAX_FOUND: Final = 100
_AROUND: Final = 100
"""Characters that are shown before and after a found text."""
_WAIT_S: Final = 25
_CHUNK: Final = 1 << 16
router = APIRouter()


def _rows(preset: PresetName | None, data: bytes, first: int) -> Iterator[Step]:
    """Yield whole lines as rows with HTML as text; `first` is the number of the first line (0: not known)."""
    if preset:
        steps = steps_of(preset, data)
    else:
        steps = [Step("printed", data.removesuffix(b"\n").decode("utf-8", "replace"))] if data else []
    colours = set[str]()
    for step in steps:
        texts = step.text.split("\n") if step.kind == "printed" else [step.text]
        for at, text in enumerate(texts, step.line):
            text_shown = cut(text.removesuffix("\r")) if step.kind == "printed" else cut(text, _STEP)
            words = terminal(text_shown, colours if step.kind == "printed" else None)
            yield replace(step, text=words, line=first and first + at)


def _around(preset: PresetName | None, data: bytes, number: int, *, back: bool) -> tuple[int, int]:
    """Return the range of bytes of the lines that fit on a page, from a line on or (`back`) before it."""
    at, left = 0, number - 1
    while at < len(data) and (passed := data.count(b"\n", at, at + _CHUNK)) < left:
        at, left = at + _CHUNK, left - passed
    for _ in range(left):
        at = data.find(b"\n", at) + 1
    start = end = at
    size = _PAGE_BYTES
    while start > 0 if back else end < len(data):
        begin = data.rfind(b"\n", 0, start - 1) + 1 if back else end
        stop = start if back else (data.find(b"\n", end) + 1 or len(data))
        size -= sum(len(row.text.encode()) + _ROW_BYTES for row in _rows(preset, data[begin:stop], 1))
        if size < 0 and start < end:
            break
        start, end = (begin, end) if back else (start, stop)
    return start, end


@router.get("/runs/{run_id}/log")
def show_log(
    run_id: str,
    context: RequestContext,
    caller: RunReader,
    visitor: Anybody,
    turn: str = "1",
    line: int = 0,
    before: int = 0,
    find: str = "",
) -> Response:
    """Show the end of a turn's log, the part at or before a line, or the lines with a text; a live one is followed."""
    run = results.run_document(run_id, context, caller)
    with results.turn_log(context, caller, run_id, turn) as log:
        data, preset = log.read(0, MAX_LOG).data, log.preset
    if not log.is_ended:
        data = data[: data.rfind(b"\n") + 1]
        data = data[: complete_bytes(preset, data)] if preset else data
    if data and not data.endswith(b"\n"):
        data += b"\n"
    last, back = data.count(b"\n"), line <= 0
    number = max(1, min(line, last))
    if back:
        number = min(before, last + 1) if before > 1 else last + 1
    start, end = _around(preset, data, number, back=back)
    first = data.count(b"\n", 0, start) + 1
    rows = list(_rows(preset, data[start:end], first))
    next_line = first + data.count(b"\n", start, end)
    matches = list(_matches(preset, data, find)) if find.strip() else None
    facts: dict[str, Any] = {
        "turn": turn,
        "rows": rows,
        "first": first,
        "following": end,
        "next_line": next_line,
        "is_end": end >= len(data),
        "is_ended": log.is_ended,
        "find": find,
        "found": matches,
        "most": _MAX_FOUND,
    }
    return page("log", visitor, run=run, **facts)


def _matches(preset: PresetName | None, data: bytes, find: str) -> Iterator[tuple[int, str, str, str]]:
    """Yield the first lines with a text: number, the text before, the text as it is there, and the text after."""
    # A program's log has it as JSON. An expression without regard to case could be made to take quadratic time.
    forms = {find, json.dumps(find)[1:-1], json.dumps(find, ensure_ascii=False)[1:-1]} if preset else {find}
    needles = {form.encode("utf-8", "replace").lower() for form in forms}
    lowered = data.lower()
    number, counted, end = 1, 0, 0
    for _ in range(_MAX_FOUND):
        offsets = {form: at for form in needles if (at := lowered.find(form, end)) >= 0}
        if not offsets:
            return
        needles, at = {*offsets}, min(offsets.values())
        begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
        end = len(data) if end < 0 else end
        number, counted = number + data.count(b"\n", counted, begin), begin
        near = data[max(begin, at - 3 * _CHUNK) : min(end, at + 3 * _CHUNK)]
        text = plain(near.decode("utf-8", "replace"))
        if preset and near == data[begin:end]:
            text = plain("\n".join(step.text for step in steps_of(preset, near)))
        at = text.lower().find(find.lower())
        stop = max(0, at) + (len(find) if at >= 0 else 0)
        before = text[max(0, at - _AROUND) : max(0, at)]
        same = text[max(0, at) : stop]
        after = text[stop:]
        yield number, printable(before), printable(same), printable(after[:_AROUND])


@router.get("/runs/{run_id}/log/{turn}")
async def read_log(run_id: str, turn: str, request: Request, context: RequestContext, caller: RunReader) -> Response:
    """Return the log as text, or a piece of it as the API does."""
    piece = await results.read_log(run_id, turn, request, context, caller)
    piece.headers.update(HEADERS)
    return piece


@router.get("/runs/{run_id}/log/{turn}/more")
async def follow(
    run_id: str, turn: str, context: RequestContext, caller: RunReader, offset: int = 0, line: int = 0
) -> Response:
    """Return the rows from an offset on, at which a line begins, once there are any; `line` is that line's number."""

    def more() -> tuple[Response, bool]:
        with results.turn_log(context, caller, run_id, turn) as log:
            piece = log.read(offset, MAX_LINE if log.preset else 4 * _CHUNK)
        data = piece.data
        is_last = piece.offset + len(piece.data) == piece.size
        skipped = data.find(b"\n") + 1 if offset < 0 and piece.offset else 0
        if not (is_last and log.is_ended):
            whole = data[: data.rfind(b"\n") + 1]
            whole = whole[: complete_bytes(log.preset, whole)] if log.preset else whole
            # A line that does not fit into a piece is shown in parts.
            data = whole or (b"" if is_last else data)
        following = piece.offset + len(data)
        rows = list(_rows(log.preset, data[skipped:], line))
        answer = page("log_rows", rows=rows, turn=turn)
        answer.headers["Runwarden-Log-Next"] = str(following)
        answer.headers["Runwarden-Log-Line"] = str(line and line + data.count(b"\n", skipped))
        is_grown = bool(data) or log.is_ended
        if is_grown:
            answer.headers["Runwarden-Log-Grown"] = "over" if is_last and log.is_ended else "more"
        return answer, is_grown

    return await results.wait_for_more(context, more, _WAIT_S)
