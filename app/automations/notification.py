"""The notifications of rules, entered as alerts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.rules.placeholders import filled
from app.rules.rule import DoNotify
from app.text import safe_text
from storage.records.alert import Alert, Level
from storage.records.decision import Decision
from storage.state import State

_LONGEST_TITLE: Final = 120
_LONGEST_TEXT: Final = 400
_LEVELS: Final[Mapping[str, Level]] = {"failed": "error", "completed": "information", "recovered": "information"}
"""By the status that triggered the rule."""


@dataclass(frozen=True, slots=True)
class NotificationWriter:
    """Enters the notifications of one profile's automations."""

    state: State
    profile: str

    async def tell(self, do: DoNotify, decision: Decision, facts: Mapping[str, str]) -> str | None:
        """Enter the notification as an alert; entering it again after a crash changes nothing.

        Raises:
            StorageError: The state cannot be written.
        """
        await self.state.enter_alerts([alert(do, decision, facts, self.profile)], self.state.clock())
        return None


def alert(do: DoNotify, decision: Decision, facts: Mapping[str, str], profile: str) -> Alert:
    """A rule's notification."""
    title = filled(do.title, facts) or _title(decision, facts)
    text = filled(do.text, facts) or " · ".join(filter(None, [facts.get("run.branch"), facts.get("run.id"), profile]))
    about = {name.partition(".")[2]: value for name, value in facts.items() if name.startswith(("run.", "host."))}
    if "id" in about:
        about["run_id"] = about.pop("id")
    group, status = _group(decision, facts), facts.get("run.status") or facts.get("host.status", "")
    return Alert(
        key=f"automation:{decision.rule}:{decision.occurrence.identity}",
        group=group,
        source=decision.rule,
        route=do.route,
        level="error" if group.startswith("host:") else _LEVELS.get(status, "warning"),
        title=safe_text(title, limit=_LONGEST_TITLE),
        body=safe_text(text, limit=_LONGEST_TEXT),
        at=decision.occurrence.at,
        about=about,
    )


def _group(decision: Decision, facts: Mapping[str, str]) -> str:
    """The inbox's key of the notification's subject. When a problem with this key ends, that is told as well."""
    match decision.occurrence.identity.partition(":")[0]:
        case "run" if facts.get("run.status") == "failed":
            return f"failed:{facts['run.repository']}"
        case "stuck":
            return f"stuck:{facts['run.id']}"
        case "health" if facts.get("host.status") != "recovered":
            return f"host:{facts['host.platform']}"
        case "action":
            return f"action:{facts['action.id']}"
        case _:
            return f"rule:{decision.rule}"


def _title(decision: Decision, facts: Mapping[str, str]) -> str:
    what = facts.get("run.repository") or facts.get("host.platform") or facts.get("action.id") or ""
    status = facts.get("run.status") or facts.get("host.status") or ("outcome unknown" if "action.id" in facts else "")
    return f"{decision.rule}: {what} {status}".rstrip(": ")
