"""Retrying a run that failed: the request of its last turn again, once for each of its failures."""

import hashlib
from dataclasses import replace

from app.api.requests import ContinueRun, StartRun, WriteRequest, asked_of
from storage.records import Action, Run
from storage.values import to_us


def retry_request(turn: Action, words: str = "") -> WriteRequest:
    """What the turn asked for, with more words below its own instructions; a named agent takes none."""
    request = asked_of(turn)
    if not words.strip() or not isinstance(request, StartRun | ContinueRun):
        return request
    return replace(request, instructions=f"{request.instructions}\n\n{words.strip()}")


def retry_key(run: Run, words: str = "") -> str:
    """The key under which this failure is retried once with these words, by any surface."""
    ended = to_us(run.updated_at) if run.updated_at else 0
    added = hashlib.sha256(words.strip().encode("utf-8", "surrogatepass")).hexdigest()[:16] if words.strip() else ""
    return f"retry-{run.run_id}-{ended}{added and '-'}{added}"
