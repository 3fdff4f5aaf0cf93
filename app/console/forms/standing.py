"""The one thing worth saying over a form before anything is typed."""

from datetime import datetime
from typing import Final

from app.console.forms.drafts import Draft
from app.engine import Engine
from app.text import SafeText, safe_text
from widgets.badges import Tone
from widgets.times import ago

_READ_ONLY: Final = "This profile is read-only: you may prepare and preview, nothing is sent."


def standing(engine: Engine, draft: Draft | None, drafts_problem: str | None) -> tuple[SafeText, Tone]:
    """What hinders sending comes first, then what hinders drafts, then where the text comes from."""
    if engine.actions.read_only:
        return safe_text(_READ_ONLY), "warn"
    if engine.token_problem is not None:
        return safe_text(str(engine.token_problem)), "warn"
    if drafts_problem is not None:
        return safe_text(drafts_problem), "warn"
    return _of_draft(draft, engine.clock())


def _of_draft(draft: Draft | None, now: datetime) -> tuple[SafeText, Tone]:
    if draft is None:
        return safe_text(""), "quiet"
    if draft.sent_at is not None:
        sent = ago(draft.sent_at, now)
        return safe_text(f"Sent {sent}, and nobody knows the outcome: look before you send it again."), "warn"
    return safe_text(f"Your draft from {ago(draft.saved_at, now)}."), "quiet"
