"""A rule and its decisions in words: as a line of the table, and as the facts beside it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from textual.content import Content

from app.text import SafeText, safe_block, safe_text
from app.times import ago, clock_time, span, stamp
from storage.records.decision import Decision, Outcome
from widgets.badges import STYLES, Badge
from widgets.cells import fit
from widgets.line_table import TableLine, TonedText

STRIP: Final = 10
"""Results in a rule's strip."""
NOTHING: Final = safe_text("—")
Mode = Literal["on", "paused", "off"]
MODES: Final[dict[Mode, Badge]] = {
    "on": Badge("▸", "on", "good"),
    "paused": Badge("‖", "paused", "warn"),
    "off": Badge("-", "off", "quiet"),
}
OUTCOMES: Final[dict[Outcome, Badge]] = {
    "done": Badge("●", "done", "good"),
    "failed": Badge("✗", "failed", "bad"),
    "unknown": Badge("?", "unknown", "warn"),
    "interrupted": Badge("?", "interrupted", "warn"),
    "skipped": Badge("○", "skipped", "quiet"),
    "limited": Badge("○", "limited", "quiet"),
    "history": Badge("○", "history", "quiet"),
    "expired": Badge("⊘", "expired", "quiet"),
    "waiting": Badge("!", "waiting", "warn"),
    "approved": Badge("◌", "approved", "busy"),
    "queued": Badge("◌", "queued", "wait"),
    "acting": Badge("◌", "acting", "busy"),
}
"""`●` it acted, `○` it did not, `!` it waits for approval, `◌` it is under way."""
_NO_RESULT: Final[TonedText] = (safe_text(" "), "quiet")


@dataclass(frozen=True, slots=True)
class RuleView:
    """One rule and its state."""

    key: str
    """The name as written in the configuration."""
    mode: Mode
    sentence: SafeText
    limits: SafeText
    paused: SafeText
    """Why it is paused; empty: it is not."""
    upcoming: tuple[datetime, ...] = ()
    """Its next times; empty: it waits for an event."""
    journal: tuple[Decision, ...] = ()
    """The decisions of the strip, newest first."""
    waiting: int = 0
    """Decisions that wait for approval."""
    warnings: tuple[SafeText, ...] = ()
    on_run: str = ""
    """The past tense of its action on the run that triggers it, such as `continued`; empty: none."""
    since: datetime | None = None
    """Since when it is in this state."""

    def did(self, decision: Decision) -> str:
        """A decision's effect on the run; vague if the rule was edited since."""
        if decision.result_id != decision.occurrence.facts.get("run.id"):
            return "made"
        is_same = self.since is not None and decision.decided_at >= self.since
        return (is_same and self.on_run) or "acted on"

    @property
    def name(self) -> SafeText:
        """Its name as shown."""
        return safe_text(self.key, limit=100)

    def cells(self, now: datetime) -> TableLine:
        """State, name, sentence, next time, and the strip with the newest result at the end."""
        badge = MODES[self.mode]
        upcoming = next((at for at in self.upcoming if at > now), None) if self.mode == "on" else None
        coming = NOTHING if upcoming is None else safe_text(until(upcoming, now))
        results = [(safe_text(OUTCOMES[each.outcome].glyph), OUTCOMES[each.outcome].tone) for each in self.journal]
        strip = [*[_NO_RESULT] * STRIP, *reversed(results[:STRIP])][-STRIP:]
        state: TonedText = (safe_text(badge.text), badge.tone)
        return state, (self.name, "plain"), (self.sentence, "quiet"), (coming, "plain"), *strip

    def facts(self, now: datetime) -> tuple[tuple[str, TonedText], ...]:
        """Its effect, its limits and its next times."""
        return tuple(self._facts(now))

    def _facts(self, now: datetime) -> Iterator[tuple[str, TonedText]]:
        badge = MODES[self.mode]
        why = {"on": "", "paused": f" {self.paused}; P resumes it", "off": "; D switches it on"}[self.mode]
        yield "automation", (self.name, "plain")
        yield "state", (safe_text(f"{badge.text}{why}"), badge.tone)
        if self.waiting:
            yield "approval", (safe_text(f"! {self.waiting} to approve or reject: v"), "warn")
        yield "does", (self.sentence, "plain")
        yield "limits", (self.limits, "quiet")
        for line in self.warnings:
            yield "warning", (safe_text(f"▲ {line}", limit=600), "warn")
        times = [at for at in self.upcoming if at > now] if self.mode == "on" else []
        for index, at in enumerate(times):
            text = f"{stamp(at)}{f', {until(at, now)}' if index == 0 else ''}"
            yield "" if index else "next", (safe_text(text), "plain")


def until(at: datetime, now: datetime) -> str:
    """The time from now, in two units from a day on: `in 4m`, `in 5h12m`, `in 2d03h`."""
    seconds = (at - now).total_seconds()
    return f"in {span(seconds)}" if seconds < 0 or seconds >= 60 else "in a moment"


def journal_lines(
    journal: tuple[Decision, ...], now: datetime, width: int, did: Callable[[Decision], str] = lambda _: "made"
) -> Content:
    """The decisions, each on a line with its cause, and the reason below."""
    lines: list[Content] = []
    for decision in journal:
        badge = OUTCOMES[decision.outcome]
        head = (f"{badge.text:<13} ", badge.style), (f"{ago(decision.decided_at, now):<9} ", STYLES["quiet"])
        lines.append(Content.assemble(*head, fit(set_off_by(decision, now), max(8, width - 24)).rstrip()))
        made = f"{did(decision)} {safe_text(decision.result_id)}" if decision.result_id else ""
        if why := "; ".join(filter(None, (made, safe_text(decision.reason, limit=400)))):
            lines.append(Content.styled(f"{'':<14}{why}", STYLES["quiet"]))
    return Content("\n").join(lines)


def set_off_by(decision: Decision, now: datetime) -> SafeText:
    """A decision's cause, in one line."""
    facts, kind = decision.occurrence.facts, decision.occurrence.identity.partition(":")[0]
    about = [facts.get(name, "") for name in ("run.id", "run.status", "run.repository", "run.branch")]
    about += [facts.get(name, "") for name in ("host.platform", "host.status", "action.kind", "action.id")]
    if said := " ".join(filter(None, about)):
        return safe_text(f"{'by hand: ' if kind == 'asked' else ''}{said}", limit=200)
    at = clock_time(decision.occurrence.at, now)
    return safe_text({"at": f"its time, {at}", "asked": f"by hand, {at}"}.get(kind, decision.occurrence.identity))


def runs_of(journal: tuple[Decision, ...]) -> dict[str, Decision]:
    """The runs that decisions made or were triggered by, with the newest decision on each, newest first."""
    found: dict[str, Decision] = {}
    for decision in journal:
        for run_id in (decision.result_id, decision.occurrence.facts.get("run.id")):
            if run_id:
                found.setdefault(run_id, decision)
    return found


def request_of(decision: Decision) -> tuple[SafeText, tuple[SafeText, ...]]:
    """Path and body of a decision's request, as kept for approval."""
    if decision.request_json is None:
        return safe_text(""), ()
    request = json.loads(decision.request_json)
    body = json.dumps(request.get("body"), indent=2, ensure_ascii=False)
    return safe_text(str(request.get("path", ""))), safe_block(body, limit=100_000)
