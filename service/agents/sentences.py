"""The sentence for people in an error of a provider or program, so that no JSON is shown."""

import json
import re
from typing import Final

_LONGEST: Final = 400
_DEPTH: Final = 4
"""Gateways and programs put the JSON of an error into the message of their own."""
_TITLE: Final = re.compile(r"<title>([^<]{1,200})</title>", re.IGNORECASE)


def sentence_in(body: str) -> str | None:
    """Return the sentence in an error's body, which may be JSON, an event of a stream, a page or text; None: none."""
    start = body.find("{")
    if start >= 0 and (found := _decoded(body, start)) is not None:
        return _line(in_words(_message(found[0]), _DEPTH - 1))
    if body.lstrip().startswith("<"):
        title = _TITLE.search(body)
        return _line(title[1]) if title else None
    return _line(body if start < 0 else body[:start])


def in_words(text: str, depth: int = _DEPTH) -> str:
    """Return a text with the sentences of errors in place of their JSON."""
    start = text.find("{")
    if start < 0 or depth == 0 or (found := _decoded(text, start)) is None:
        return text
    document, end = found
    return text[:start] + in_words(_message(document), depth - 1) + in_words(text[end:], depth - 1)


def _decoded(text: str, start: int) -> tuple[dict[str, object], int] | None:
    try:
        document, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return (document, end) if isinstance(document, dict) else None


def _message(document: dict[str, object]) -> str:
    """Return the message of an error as Anthropic, OpenAI, Gemini or a gateway in front of them puts it."""
    errors = document.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else None
    for holder in (document.get("error"), document.get("response"), first, document):
        if isinstance(holder, str) and holder.strip():
            return holder
        if isinstance(holder, dict):
            inner = holder.get("error")
            for value in (holder.get("message"), holder.get("detail"), inner):
                if isinstance(value, str) and value.strip():
                    return value
            if isinstance(inner, dict) and isinstance(inner.get("message"), str):
                return str(inner["message"])
    return ""


def _line(text: str) -> str | None:
    line = " ".join(text.split())
    return (line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…") or None
