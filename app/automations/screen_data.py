"""The data of the Automations tab: the file's rules with their state, and pending approvals."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from textual.content import Content

from app.automations.acting import PROPOSALS, describe_request
from app.automations.bot import rules_of, working_process
from app.automations.fire_times import upcoming
from app.automations.rule import DoCancel, DoContinue, DoRetry, Rule, fingerprint_of
from app.automations.sentence import limits, sentence, warnings
from app.engine.engine import Engine
from app.engine.text import SafeText, safe_block, safe_text
from app.profiles import ConfigError, Settings
from app.profiles.load import no_such_file, parse, read_text
from storage.records.decision import Decision, RuleState
from storage.state import AT_WORK, State
from widgets.automations import STRIP, Mode, RuleView, Status, set_off_by, until
from widgets.kit.badges import STYLES, Badge
from widgets.kit.cells import fit, shorten

MAX_WAITING: Final = 200
"""How many requests the sheet lists, the newest ones: it draws all of them every second."""
UPCOMING: Final = 5
_ON_RUN: Final[Mapping[type, str]] = {DoContinue: "continued", DoRetry: "continued", DoCancel: "cancelled"}
"""Retrying a turn that continued a run continues it again; any other retry starts a run."""


class RulesFile:
    """The rules of the configuration file; while the file has a mistake, its last valid rules."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.problem: ConfigError | None = None
        self._stamp = _stamp(settings.file)

    def read(self) -> Settings:
        """Return the settings with the file's automations and routes; reads it only if it changed. Blocks."""
        file = self.settings.file
        stamp = _stamp(self.settings.file)
        if file is not None and stamp != self._stamp:
            self._stamp = stamp
            try:
                if (text := read_text(file)) is None:
                    raise no_such_file(file)
                self.use(parse(file, text))
            except ConfigError as error:
                self.problem = error
        return self.settings

    def use(self, new: Settings) -> None:
        self.problem, self._stamp = None, _stamp(self.settings.file)
        self.settings = replace(self.settings, automations=new.automations, notify=new.notify, profiles=new.profiles)

    def rule_text(self, name: str) -> tuple[SafeText, ...]:
        """Return a rule's table as the file has it, or nothing if it is unknown. Blocks."""
        from app.automations.tables import read_tables  # tomlkit

        try:
            if self.settings.file is None:
                return ()
            return safe_block(read_tables(self.settings.file).table_text(name))
        except ConfigError:
            return ()


def _stamp(file: Path | None) -> tuple[int, int] | None:
    if file is not None:
        with suppress(OSError):
            status = file.stat()
            return status.st_mtime_ns, status.st_size
    return None


class Automations(Struct, frozen=True):
    """The rules of one profile, and the pending approvals."""

    rules: Mapping[str, Rule]
    views: tuple[RuleView, ...]
    waiting: tuple[Decision, ...]
    """The decisions that wait for approval, oldest first."""
    status: Status | None
    """The bot's state; None if a bot would have nothing to do."""


class Approval(Struct, frozen=True):
    """A decision that waits for approval."""

    decision: Decision
    words: SafeText
    expires: timedelta
    """The time from the decision to its expiry."""

    def lines(self, now: datetime, width: int, *, is_marked: bool) -> Content:
        end = self.decision.decided_at + self.expires
        expires = f"  expires {until(end, now) if end > now else 'now'}"
        rule = safe_text(self.decision.rule, limit=max(1, width // 3))
        facts = self.decision.occurrence.facts
        # The request's own words name the repository and branch.
        cause = safe_text(facts.get("run.status", "")) if "run.id" in facts else set_off_by(self.decision, now)
        room = max(1, width - 2 - len(expires))
        return Content.assemble(
            ("■ " if is_marked else "  ", "$accent"),
            Content(fit(f"{rule}  {cause}", room)).stylize(f"{STYLES['warn']} bold", 0, len(rule)),
            (f"{expires}\n  ", STYLES["quiet"]),
            shorten(self.words, max(1, width - 2)),
        )


async def read_approvals(engine: Engine, settings: Settings) -> dict[str, Approval]:
    """Read the newest pending approvals of an engine's profile by their decision's number, oldest first."""
    rules = {rule.name: rule for rule in (*PROPOSALS.values(), *rules_of(settings.automations, engine.profile.name))}
    waiting = (await engine.usable_state().open_decisions(outcome="waiting"))[-MAX_WAITING:]
    now = engine.clock()
    details = await engine.cache.details([decision.run_id for decision in waiting])
    approvals = dict[str, Approval]()
    for decision in waiting:
        if (rule := rules.get(decision.rule)) is not None:
            words = describe_request(decision, details.get(decision.run_id)) or sentence(rule, now)
            approvals[f"{decision.decision_id}"] = Approval(decision, safe_text(words), rule.approval_expires)
    return approvals


async def read_automations(state: State, settings: Settings, profile: str, now: datetime) -> Automations:
    rules = rules_of(settings.automations, profile)
    states = await state.rule_states()
    waiting = await state.open_decisions(outcome="waiting")
    bot = await working_process(state, now)
    views = []
    for rule in rules:
        view = view_of(rule, states.get(rule.name), rules, now, settings.notify.silent)
        count = sum(decision.rule == rule.name for decision in waiting)
        views.append(replace(view, journal=await state.journal(rule.name, limit=STRIP), waiting=count))
    read = states.get(AT_WORK)
    is_outdated = bot is not None and read is not None and read.fingerprint != fingerprint_of(rules)
    badge, hint = Badge("●", "a bot is at work:", "good"), f"process {bot}"
    if bot is None:
        badge = Badge("◌", "no bot is running:", "warn")
        hint = f"{settings.command_line} watch starts one"
    elif is_outdated:
        badge = Badge("▲", "the running bot uses an older file:", "warn")
        hint = f"kill -HUP {bot}"
    status = None
    if views or waiting or is_outdated:
        status = Status(badge, safe_text(hint), len(waiting))
    return Automations({rule.name: rule for rule in rules}, tuple(views), waiting, status)


def view_of(
    rule: Rule, state: RuleState | None, rules: Sequence[Rule], now: datetime, silent: Collection[str] = ()
) -> RuleView:
    paused, since = (None, None) if state is None else (state.paused, state.since)
    word: Mode = "paused" if paused else "on"
    return RuleView(
        rule.name,
        word if rule.is_on else "off",
        safe_text(sentence(rule, now), limit=1_000),
        safe_text(limits(rule), limit=1_000),
        safe_text(paused or ""),
        tuple(islice(upcoming(rule, since or now, now), UPCOMING)),
        warnings=tuple(safe_text(line) for line in warnings(rule, rules, now, silent)),
        on_run=_ON_RUN.get(type(rule.do), ""),
        since=since,
    )
