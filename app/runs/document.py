"""A run as JSON, with the service's own fields as received and our observations; and its web address."""

import json
from typing import Final
from urllib.parse import quote

from app.engine.times import rfc3339
from storage.records import CANCELLED, Action, Run, RunDetail


def run_document(
    run: Run, detail: RunDetail | None, *, stuck: bool = False, continues: str | None = None
) -> dict[str, object]:
    """A run: the spec's fields (2.4) as received, and observations; without `detail` the run is not cached.

    `continues` is the earlier run of the same conversation, if that has another id.
    """
    findings = detail.summary.findings if detail else None
    observed = {
        "first_seen_at": rfc3339(detail.first_seen_at) if detail else None,
        "last_seen_at": rfc3339(detail.last_seen_at) if detail else None,
        "state": detail.presence if detail else "current",
        "transitions": [
            {"from": move.old, "to": move.new, "at": rfc3339(move.at)}
            for move in (detail.transitions if detail else ())
        ],
        "stuck": stuck,
        "continues": continues,
        "agent": detail.summary.agent if detail else None,
        "findings": dict(findings.by_severity) if findings is not None else None,
    }
    return {**spec_fields(run), "observed": observed}


def spec_fields(run: Run) -> dict[str, object]:
    """A run's fields as received; for a cancelled one, `"outcome": "cancelled"` is added to the service's status."""
    return as_received(run.raw_json) | ({"outcome": CANCELLED} if run.status == CANCELLED else {})


def as_received(raw_json: str | None) -> dict[str, object]:
    """The service's object as received; empty if there is none."""
    value = json.loads(raw_json) if raw_json else {}
    return value if isinstance(value, dict) else {}


def instructions_of(action: Action) -> str:
    """The action's instructions; empty if it had none."""
    return str(as_received(action.body_json).get("instructions") or "")


_WHEN_RECEIVED: Final = {
    "now": "Its agent gets it while it works.",
    "end": "It starts the run's next turn, after this one.",
    "stop": "Its turn is stopped, and the next one starts with this.",
}


def when_heard(action: Action) -> str:
    """When an agent gets a message, according to the service; empty if not stated, or for other actions."""
    if action.kind == "run.say":
        return _WHEN_RECEIVED.get(str(as_received(action.response_json).get("when")), "")
    return ""


NO_PAGE: Final = 'Nothing says where runs are shown. Set console.run_url, as in "https://example.com/{run_id}".'


def run_address(template: str, run: Run) -> str:
    """The run's address in a browser, from `console.run_url`; its values are quoted."""
    facts = {"run_id": quote(run.run_id, safe=""), "branch": quote(run.branch_name, safe="")}
    return template.format_map({**facts, "repository": quote(run.repository.path, safe="/")})
