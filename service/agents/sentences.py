"""The readable sentence in an error of a provider or program, without JSON."""

import json
import re
from typing import Final

from service.text import items, table

_LONGEST: Final = 400
_DEPTH: Final = 4
"""Gateways and programs put the JSON of an error into their own message."""
_TITLE: Final = re.compile(r"<title>([^<]{1,200})</title>", re.IGNORECASE)
_BEGINS: Final = re.compile(r"""\{\s*["']\w""")
_MESSAGE: Final = re.compile(
    r"""["'](?:message|detail|error)["']\s*:\s*(?:"((?:[^"\\]|\\.)*)|'((?:[^'\\]|\\.)*))""", re.DOTALL
)
"""The message in JSON that is cut off, or in a dictionary as Python prints it."""
_PLAIN: Final = (
    (re.compile(r"(http\.client\.)?(IncompleteRead|RemoteDisconnected)\([^)]*\)"), "the connection was cut"),
    (re.compile(r"(TypeError: )?fetch failed"), "the connection failed"),
)


def sentence_in(body: str) -> str | None:
    """Return the sentence in an error's body, which may be JSON, an event of a stream, a page or text; None: none."""
    start = body.find("{")
    if start >= 0 and (found := _json_message(body, start)) is not None:
        return in_words(found[0]) or None
    if body.lstrip().startswith("<"):
        title = _TITLE.search(body)
        return in_words(title[1]) if title else None
    return in_words(body if start < 0 else body[:start]) or None


def in_words(text: str) -> str:
    """Return a text as one line of at most 400 characters, with the sentences of errors in place of their JSON."""
    text = _without_json(text, _DEPTH)
    for pattern, words in _PLAIN:
        text = pattern.sub(words, text)
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _without_json(text: str, depth: int) -> str:
    start = text.find("{")
    if start < 0 or depth == 0 or (found := _json_message(text, start)) is None:
        return text
    message, end = found
    # Gemini's errors may be in a list.
    before, after = re.sub(r"\[\s*$", "", text[:start]), re.sub(r"^\s*\]", "", text[end:])
    return before + _without_json(message, depth - 1) + _without_json(after, depth - 1)


def _json_message(text: str, start: int) -> tuple[str, int] | None:
    """Return the message of the JSON that begins at an offset, and the offset after it; None: it is not JSON."""
    try:
        document, end = json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        if not _BEGINS.match(text, start):
            return None
        found = _MESSAGE.search(text, start)
        return "" if found is None else (found[1] or found[2] or "").replace("\\n", " ").replace("\\", ""), len(text)
    return (_message(document), end) if isinstance(document, dict) else None


def _message(document: dict[str, object]) -> str:
    """Return the message of an error as Anthropic, OpenAI, Gemini or a gateway in front of them puts it."""
    for holder in (document.get("error"), document.get("response"), *items(document.get("errors"))[:1], document):
        if isinstance(holder, str) and holder.strip():
            return holder
        if isinstance(holder, dict):
            inner = holder.get("error")
            for value in (holder.get("message"), holder.get("detail"), inner):
                if isinstance(value, str) and value.strip():
                    return value
            if isinstance(message := table(inner).get("message"), str):
                return message
    return ""
