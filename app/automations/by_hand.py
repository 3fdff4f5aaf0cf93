"""Automations by hand: preview what a rule would do, and set it off."""

import json
import shlex
from dataclasses import dataclass
from typing import Final

from app.automations.acting import CannotActError, facts_of
from app.automations.assembly import dispatcher_of, occurrence_asked_for, runner_of
from app.config import Settings
from app.engine import Engine
from app.rules.placeholders import filled, filled_argument
from app.rules.rule import DoCommand, DoNotify, Rule
from storage.records.decision import Decision, Occurrence
from storage.state import State

_FROM_THE_RULE: Final = "(made from the rule's name and what set it off)"


@dataclass(frozen=True, slots=True)
class Preview:
    """The exact effect of a rule."""

    verb: str
    """`POST`, `RUN` or `NOTIFY`."""
    target: str
    body: str
    """JSON, or text; empty: there is none."""


@dataclass(frozen=True, slots=True)
class ByHand:
    """Sets one rule off by a person's wish, within its limits."""

    settings: Settings
    engine: Engine
    state: State

    async def preview(self, rule: Rule, run_id: str | None) -> Preview:
        """The rule's effect now, on this run if it needs one.

        Raises:
            CannotActError: It could not act; the message says why.
            StorageError: Cache or ledger cannot be read.
        """
        occurrence = await occurrence_asked_for(self.engine, rule, run_id)
        return await self._preview(rule, occurrence)

    async def _preview(self, rule: Rule, occurrence: Occurrence) -> Preview:
        decision = Decision(0, rule.name, occurrence, self.engine.clock(), "acting", "")
        facts = facts_of(rule, decision, self.engine.profile.name)
        match rule.do:
            case DoNotify(route, title, text):
                return Preview("NOTIFY", route, "\n".join(filter(None, (filled(title or _FROM_THE_RULE, facts), text))))
            case DoCommand(argv):
                return Preview("RUN", shlex.join(filled_argument(argument, facts) for argument in argv), "")
        runner = runner_of(self.settings, self.engine, self.state, lambda _: None)
        request = await runner.responses.request(rule, decision)
        if request is None:
            raise CannotActError("it sends nothing to the service")
        return Preview("POST", request.path, json.dumps(request.body(), indent=2, ensure_ascii=False))

    async def set_off(self, rule: Rule, run_id: str | None) -> Decision | None:
        """Trigger the rule and return the decision. None: it was triggered by hand at this very moment.

        Raises:
            CannotActError: The run is not held any longer.
            StorageError: A file cannot be read or written.
        """
        seen: list[Decision] = []
        runner = runner_of(self.settings, self.engine, self.state, seen.append)
        await runner.set_off(rule, await occurrence_asked_for(self.engine, rule, run_id))
        if isinstance(rule.do, DoNotify):
            # Without a bot at work, nothing else would deliver the message.
            dispatcher = dispatcher_of(self.settings, self.engine, self.state, lambda *_, **__: None, lambda _: None)
            await dispatcher.look()
            await dispatcher.postman.deliver()
        return seen[-1] if seen else None
