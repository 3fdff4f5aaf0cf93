"""The Automations tab's data: the rules in the configuration, and their state."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Final

from app.automations.assembly import rules_of
from app.automations.bot import LEASE, process_of
from app.automations.occurrences import upcoming
from app.config import ConfigError, Settings
from app.config.automation_tables import read_tables
from app.config.load import parse
from app.engine import Engine
from app.rules.rule import DoCancel, DoContinue, DoRetry, Rule, fingerprint_of
from app.rules.sentence import limits, sentence, warnings
from app.text import SafeText, safe_block, safe_text
from storage.records.decision import Decision, RuleState
from storage.state import AT_WORK, State
from widgets.automations.formatting import STRIP, RuleView
from widgets.automations.table import Status
from widgets.badges import Badge

JOURNAL: Final = 100
"""The newest decisions of a rule that are shown."""
MOST_WAITING: Final = 200
UPCOMING: Final = 5
_ON_RUN: Final[Mapping[type, str]] = {DoContinue: "continued", DoRetry: "continued", DoCancel: "cancelled"}
"""Retrying a turn that continued a run continues it again; any other retry starts a run."""
NO_BOT: Final = Badge("◌", "no bot is running:", "warn")
OUTDATED: Final = Badge("▲", "the running bot uses an older file:", "warn")
"""The bot acts by other rules than those on show."""


class RulesFile:
    """The rules of the configuration file; while it has a mistake, the rules read before."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.problem: ConfigError | None = None
        """Why the file cannot be used."""
        self._stamp = _stamp(settings.file)

    def read(self) -> Settings:
        """Return the settings with the file's automations and routes; reads it only if it changed. Blocks."""
        file, stamp = self.settings.file, _stamp(self.settings.file)
        if file is not None and stamp != self._stamp:
            self._stamp = stamp
            try:
                new = parse(file, file.read_text("utf-8"))
            except ConfigError as error:
                self.problem = error
            except (OSError, UnicodeDecodeError) as error:
                self.problem = ConfigError(f"this cannot be read: {error}.", cure="Correct that.", file=file)
            else:
                self.take(new)
        return self.settings

    def take(self, new: Settings) -> None:
        """Use these automations and routes from now on."""
        self.problem, self._stamp = None, _stamp(self.settings.file)
        self.settings = replace(self.settings, automations=new.automations, notify=new.notify, profiles=new.profiles)

    def written(self, name: str) -> tuple[SafeText, ...]:
        """Return a rule's table as the file has it; empty: unknown. Blocks."""
        try:
            return () if self.settings.file is None else safe_block(read_tables(self.settings.file).written(name))
        except ConfigError:
            return ()


@dataclass(frozen=True, slots=True)
class Automations:
    """The rules of one profile, and the pending approvals."""

    rules: tuple[Rule, ...]
    views: tuple[RuleView, ...]
    """One for each rule, in the same order."""
    waiting: tuple[Decision, ...]
    """The decisions that wait for approval, oldest first."""
    status: Status | None
    """The bot's state; None: there is nothing for a bot to do."""
    bot: int | None
    """The bot's process, or None."""


@dataclass(frozen=True, slots=True)
class Approval:
    """One pending decision."""

    decision: Decision
    sentence: SafeText
    """The sentence that describes its rule."""
    expires: timedelta
    """How long it waits for an answer, from the decision on."""


async def read_approvals(engine: Engine, settings: Settings) -> tuple[Approval, ...]:
    """Read the pending approvals of an engine's profile, oldest first.

    Raises:
        StorageError: The state cannot be read.
    """
    rules = {rule.name: rule for rule in rules_of(settings.automations, engine.profile.name)}
    waiting, now = (
        (await engine.usable_state().journal(outcomes=("waiting",), limit=MOST_WAITING))[::-1],
        engine.clock(),
    )
    known = [(each, rules[each.rule]) for each in waiting if each.rule in rules]
    return tuple(Approval(each, safe_text(sentence(rule, now)), rule.approval_expires) for each, rule in known)


async def read_automations(state: State, settings: Settings, profile: str, now: datetime) -> Automations:
    """Read the rules of a profile with their state, and the pending approvals.

    Raises:
        StorageError: The state cannot be read.
    """
    rules = rules_of(settings.automations, profile)
    states = await state.rule_states()
    waiting = (await state.journal(outcomes=("waiting",), limit=MOST_WAITING))[::-1]
    bot = process_of(await state.lease_owner(LEASE, now))
    views = []
    for rule in rules:
        journal = await state.journal(rule.name, limit=STRIP)
        count = sum(decision.rule == rule.name for decision in waiting)
        view = view_of(rule, states.get(rule.name), rules, now, settings.notify.silent, journal=journal, waiting=count)
        views.append(view)
    read = states.get(AT_WORK)
    is_outdated = bot is not None and read is not None and read.fingerprint != fingerprint_of(rules)
    if bot is None:
        badge, hint = NO_BOT, f"{settings.command_line} watch starts one"
    elif is_outdated:
        badge, hint = OUTDATED, f"kill -HUP {bot}"
    else:
        badge, hint = Badge("●", "a bot is at work:", "good"), f"process {bot}"
    status = Status(badge, safe_text(hint), len(waiting))
    return Automations(rules, tuple(views), waiting, status if views or is_outdated else None, bot)


def view_of(
    rule: Rule,
    state: RuleState | None,
    rules: Sequence[Rule],
    now: datetime,
    silent: Collection[str] = (),
    *,
    journal: tuple[Decision, ...] = (),
    waiting: int = 0,
) -> RuleView:
    """Return a rule as it is shown, with its next times."""
    paused = state.paused if state is not None else None
    return RuleView(
        rule.name,
        "off" if not rule.is_on else "paused" if paused else "on",
        safe_text(sentence(rule, now), limit=1_000),
        safe_text(limits(rule), limit=1_000),
        safe_text(paused or ""),
        tuple(islice(upcoming(rule, state.since if state is not None else now, now), UPCOMING)),
        journal,
        waiting,
        tuple(safe_text(line) for line in warnings(rule, rules, now, silent)),
        _ON_RUN.get(type(rule.do), ""),
        state.since if state is not None else None,
    )


def _stamp(file: Path | None) -> tuple[int, int] | None:
    try:
        found = None if file is None else file.stat()
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size)
