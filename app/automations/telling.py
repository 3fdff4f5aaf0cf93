"""Telling people: a rule's notification, over the route that it names."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from app.config import NotifySettings
from app.notify.channels import Channels
from app.notify.notifications import Level, Notification
from app.notify.relay import relayed
from app.rules.placeholders import filled
from app.rules.rule import DoNotify
from app.text import safe_text
from storage.records.decision import Decision

DEFAULT: Final = "default"
_LONGEST_TITLE: Final = 120
_LONGEST_TEXT: Final = 400


@dataclass(frozen=True, slots=True)
class Telling:
    """The routes of one profile."""

    settings: NotifySettings
    profile: str

    async def tell(self, do: DoNotify, decision: Decision, facts: Mapping[str, str]) -> str | None:
        """Deliver the notification. Returns what went wrong, with the cure, or None."""
        news = _notification(do, decision, facts, self.profile)
        route = next((route for route in self.settings.routes if route.name == do.route), None)
        if route is None:
            return await self._through(replace(self.settings, bell=False), news)
        own = replace(self.settings, bell=False, desktop=route.desktop, command=route.command)
        troubles = [await self._through(own, news)]
        if route.urls_env or route.urls_file:
            troubles.append(await relayed(route, news, os.environ))
        return "; ".join(filter(None, troubles)) or None

    async def _through(self, settings: NotifySettings, news: Notification) -> str | None:
        channels = Channels(settings, self.profile, os.environ, ring_bell=lambda: None, write=lambda _: None)
        return "; ".join(await channels.deliver([news])) or None


def _notification(do: DoNotify, decision: Decision, facts: Mapping[str, str], profile: str) -> Notification:
    level: Level = "error" if facts.get("run.status") == "failed" or "host.status" in facts else "warning"
    title = filled(do.title, facts) or _title(decision, facts)
    text = filled(do.text, facts) or " · ".join(filter(None, [facts.get("run.branch"), facts.get("run.id"), profile]))
    about = {name.partition(".")[2]: value for name, value in facts.items() if name.startswith(("run.", "host."))}
    if "id" in about:
        about["run_id"] = about.pop("id")
    return Notification(
        # Stands in the text as well: what times out may have been delivered, and people see that it is the same.
        key=f"automation:{decision.rule}:{decision.occurrence.identity}",
        kind="run",
        level=level,
        title=safe_text(title, limit=_LONGEST_TITLE),
        body=safe_text(f"{text} [{decision.decision_id}]", limit=_LONGEST_TEXT),
        at=decision.occurrence.at,
        about=tuple(about.items()),
    )


def _title(decision: Decision, facts: Mapping[str, str]) -> str:
    what = facts.get("run.repository") or facts.get("host.platform") or facts.get("action.id") or ""
    status = facts.get("run.status") or facts.get("host.status") or ("outcome unknown" if "action.id" in facts else "")
    return f"{decision.rule}: {what} {status}".rstrip(": ")
