"""News of the code hosts and of our own link: never mixed up, and only once they have held."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from app.health import Incident
from app.notify.news import News
from app.text import safe_text
from storage.records import LinkState
from widgets.times import clock_time, span

REFUSALS: Final = frozenset({"not_authorized", "forbidden", "token", "no_token"})
"""Errors that are the token's: the link is up. A second look changes nothing, so they are told at once."""
_TOKEN_WORDS: Final = {
    "not_authorized": "The service refuses the token (401)",
    "forbidden": "The token may not do this (403)",
}


def incident_news(incidents: Sequence[Incident], hold: timedelta, now: datetime, profile: str) -> tuple[News, ...]:
    """What is to be known of one platform's incidents: that they began, got worse, and are over."""
    held = [incident for incident in incidents if incident.lasted >= hold]
    return tuple(
        _over(incident, now, profile) if incident.is_over else _begun(incident, hold, now, profile) for incident in held
    )


def link_news(link: LinkState, hold: timedelta, now: datetime, profile: str) -> News | None:
    """Our link is down, or the token refused; None: it is well, or has not been down for long enough."""
    if link.failing_since is None:
        return None
    is_refused = link.error_kind in REFUSALS
    if not is_refused and (now - link.failing_since < hold or link.failures < 2):  # noqa: PLR2004 — one lost answer is no trouble yet
        return None
    title = (
        _TOKEN_WORDS.get(link.error_kind or "", "There is no usable token") if is_refused else "No link to the service"
    )
    since = f"since {clock_time(link.failing_since, now)}"
    note = "no code host is called bad for it" if not is_refused else "create another and give it to this profile"
    return News(
        key=f"link:{'token' if is_refused else 'down'}:{link.failing_since.isoformat()}",
        kind="link",
        level="error",
        title=safe_text(f"{title}: {profile}", limit=120),
        body=safe_text(f"{since}; {note} · {link.error_message or ''}".rstrip(" ·"), limit=200),
        at=link.failing_since,
        about=(("status", "token refused" if is_refused else "down"),),
        lasts=True,
    )


def link_back_news(told: News, link: LinkState, now: datetime, profile: str) -> News:
    """What was told of our link is over."""
    back = link.last_ok_at or now
    what = (
        "The service accepts the token again"
        if told.key.startswith("link:token")
        else "The link to the service is back"
    )
    return News(
        key=f"{told.key}:over",
        kind="link",
        level="information",
        title=safe_text(f"{what}: {profile}", limit=120),
        body=safe_text(f"after {span((back - told.at).total_seconds())}"),
        at=back,
        about=(("status", "up"),),
        after=(told.key,),
    )


def _keys(incident: Incident) -> tuple[str, str, str]:
    """Of its news: that it is impaired, that it is bad, that it is over."""
    base = f"health:{incident.platform}:{incident.start.isoformat()}"
    return f"{base}:impaired", f"{base}:bad", f"{base}:over"


def _begun(incident: Incident, hold: timedelta, now: datetime, profile: str) -> News:
    impaired, bad, _ = _keys(incident)
    is_bad = incident.worst == "bad" and incident.bad_s >= hold.total_seconds()
    words = " and ".join(incident.words[:3])
    how = f"is flapping: {words}" if incident.recoveries else f"is {incident.word}"
    return News(
        key=bad if is_bad else impaired,
        kind="health",
        level="error" if is_bad else "warning",
        title=safe_text(f"Code host {incident.platform} {how}", limit=120),
        body=safe_text(f"since {clock_time(incident.start, now)} · {profile}", limit=200),
        at=incident.start,
        about=(("platform", incident.platform), ("status", incident.word)),
        # Well for a moment: nobody is told now, but whoever was told stays on the list for its end.
        after=(impaired, bad) if incident.recovered_at is not None else (),
        lasts=True,
    )


def _over(incident: Incident, now: datetime, profile: str) -> News:
    impaired, bad, over = _keys(incident)
    how = "is well again" if incident.recovered_at is not None else "is no longer connected"
    return News(
        key=over,
        kind="health",
        level="information",
        title=safe_text(f"Code host {incident.platform} {how}", limit=120),
        body=safe_text(
            f"after {span(incident.lasted.total_seconds())}, since {clock_time(incident.start, now)} · {profile}",
            limit=200,
        ),
        at=incident.recovered_at or incident.until,
        about=(("platform", incident.platform), ("status", "well")),
        after=(impaired, bad),
    )
