"""Retrying a failed run: its last turn's request again, once for each failure."""

import hashlib

from msgspec.structs import replace

from app.api.requests import ContinueRun, StartRun, WriteRequest, asked_of
from storage.records import Action, Run
from storage.values import to_us


def retry_request(turn: Action, words: str = "") -> WriteRequest:
    """The turn's request, with more words below its own instructions; a named agent takes none."""
    request = asked_of(turn)
    if not words.strip() or not isinstance(request, StartRun | ContinueRun):
        return request
    return replace(request, instructions=f"{request.instructions}\n\n{words.strip()}")


def retry_key(run: Run, words: str = "") -> str:
    """The key under which this failure is retried once with these words, from anywhere."""
    ended = to_us(run.updated_at) if run.updated_at else 0
    added = hashlib.sha256(words.strip().encode("utf-8", "surrogatepass")).hexdigest()[:16] if words.strip() else ""
    return f"retry-{run.run_id}-{ended}{added and '-'}{added}"
