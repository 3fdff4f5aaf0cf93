"""Carries out decisions of rules: as writes through the ledger, as programs, or as notifications.

Proposals are writes that a program asks for: each waits for approval like a rule's request, and is sent as shown.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from app.actions.actions import retry_key
from app.actions.asked import Asked, original_request
from app.actions.refusals import ActionRefusedError, AlreadyAskedError
from app.api.errors import ApiError
from app.api.requests import RULE, CancelRun, ContinueRun, StartAgent, StartRun, WriteRequest, request_from
from app.automations.occurrences import manual_occurrence
from app.automations.rule import (
    NO_LIMIT,
    DoAgent,
    DoCancel,
    DoCommand,
    DoContinue,
    DoNotify,
    DoRetry,
    DoSend,
    DoStart,
    OnProposal,
    OnRun,
    Rule,
    decide,
    filled_argument,
)
from app.engine.engine import Engine
from app.engine.text import fill, first_line
from app.engine.times import rfc3339
from app.notify.alerts import own_alert
from app.notify.channels import run_program
from storage import RunwardenError
from storage.records import Action, ActionKind, Repository, Run, RunDetail
from storage.records.alert import Alert, Level
from storage.records.decision import Decision, Outcome, Verdict
from storage.records.error_kinds import error_kind
from storage.records.results import SEVERITIES

_LEVELS: Final[Mapping[str, Level]] = {"failed": "error", "completed": "information", "recovered": "information"}
_OUTCOMES: Final[Mapping[str, Outcome]] = {"confirmed": "done", "unknown": "unknown", "sending": "unknown"}
PROPOSALS: Final[Mapping[ActionKind, Rule]] = {
    kind: Rule(
        f"[mcp] {kind}",
        OnProposal(),
        DoSend(kind),
        overlap="allow",
        pause_after=0,
        limit=NO_LIMIT,  # Each needs approval anyway.
        needs_approval=True,
    )
    for kind in ("run.start", "run.continue", "run.cancel", "agent.start")
}
"""The rules that every bot has in addition to the configured ones, by the kind of write."""
MAX_WAITING: Final = 50


class CannotActError(RunwardenError):
    """The rule cannot act; the message says why."""


class ActingResult(Verdict, frozen=True):
    """The result of carrying out a decision."""

    action_id: str | None = None
    result_id: str | None = None
    may_repeat: bool = False
    """Whether the action certainly had no effect and can be tried again."""


class ResponseRunner(Struct, frozen=True):
    """Carries out the responses of one profile's rules."""

    engine: Engine
    hidden: frozenset[str]
    """Environment variables that are hidden from programs."""

    async def execute(self, rule: Rule, decision: Decision) -> ActingResult:
        """Carry out the rule's action at most once for this decision. Failures are returned, not raised."""
        profile = self.engine.profile.name
        state = self.engine.usable_state()
        actions = self.engine.actions
        facts = facts_of(rule, decision, profile)
        match rule.do:
            case DoNotify() as do:
                # Storing it again after a crash changes nothing.
                note = make_alert(do, decision, facts, profile)
                if isinstance(rule.on, OnRun) and rule.on.needs_results and note.level == "information":
                    note = replace(note, level="error" if rule.on.finding == SEVERITIES[0] else "warning")
                await state.enter_alerts([note], state.clock())
                return ActingResult("done")
            case DoCommand(argv):
                filled_argv = [filled_argument(argument, facts) for argument in argv]
                env = {name: value for name, value in os.environ.items() if name not in self.hidden}
                trouble = await run_program(filled_argv, env=env)
                if trouble is None:
                    return ActingResult("done")
                return ActingResult("failed", trouble)
        try:
            request = await self.request(rule, decision)
            if decision.request_json is not None and request_text(request) != decision.request_json:
                return ActingResult("expired", "the request differs from the approved one")
            rule_actions = replace(actions, actor=f"bot:{rule.name}:{actions.actor.rpartition(':')[2]}")
            stored = decision.occurrence.facts
            key = stored.get("key") or f"automation-{decision.decision_id}-{rfc3339(decision.decided_at)}"
            if isinstance(rule.do, DoRetry):
                # One key for a failure, whoever retries it: it is retried once, and then it is dealt with.
                key = retry_key((await self._cached_run(stored)).run)
            return result_of(await rule_actions.submit(request, key=key))
        except AlreadyAskedError as asked:
            return result_of(asked.existing)
        except (ActionRefusedError, CannotActError) as reason:
            return ActingResult("failed", str(reason))
        except ApiError as error:
            return ActingResult("failed", f"the service could not be asked: {error.message}", may_repeat=True)

    async def request(self, rule: Rule, decision: Decision) -> WriteRequest:
        """The exact request, except for the action's id; raises `CannotActError` without one, or an `ApiError`."""
        engine = self.engine
        facts = facts_of(rule, decision, engine.profile.name)
        match rule.do:
            case DoStart(instructions, repository, branch):
                try:
                    reference = Repository.parse(fill(repository, facts))
                except ValueError as error:
                    raise CannotActError(str(error)) from error
                branch_name = fill(branch or "", facts) or None
                return StartRun(fill(instructions, facts), reference, branch_name, {RULE: rule.name})
            case DoAgent(agent, repository, branch, inputs):
                values = {name: fill(value, facts) for name, value in inputs}
                return StartAgent(agent, fill(repository, facts), fill(branch or "", facts) or None, {**values})
            case DoContinue(instructions):
                run = (await self._cached_run(facts)).run
                return ContinueRun(run.run_id, fill(instructions, facts), run.repository, None, {RULE: rule.name})
            case DoCancel():
                cancellation = CancelRun(facts["run.id"])
                try:
                    _ = cancellation.path  # Raises for an id that would change the path.
                except ValueError as error:
                    raise CannotActError(f"run {facts['run.id']!r} cannot be addressed: {error}") from error
                return cancellation
            case DoRetry():
                original = await original_request(engine.ledger, engine.extension.turns, await self._cached_run(facts))
                if not isinstance(original, Asked):
                    raise CannotActError(f"its instructions are unknown. {original.reason}".rstrip("."))
                again = original.request
                if isinstance(again, StartRun | ContinueRun):
                    return replace(again, metadata={**again.metadata, RULE: rule.name})
                return again
            case DoSend(kind):
                stored = json.loads(decision.request_json or "null")
                if stored is None:
                    raise CannotActError("its request is no longer known")
                return request_from(kind, stored["path"], stored["body"])
            case _:
                raise CannotActError("it sends nothing to the service")

    async def _cached_run(self, facts: Mapping[str, str]) -> RunDetail:
        if (detail := await self.engine.cache.detail(facts["run.id"])) is None:
            raise CannotActError(f"run {facts['run.id']} is no longer in the cache")
        return detail


class NoEffects:
    """Pretends to carry out every decision: for a replay."""

    async def execute(self, _rule: Rule, _decision: Decision) -> ActingResult:
        return ActingResult("done")

    async def request(self, _rule: Rule, _decision: Decision) -> WriteRequest:
        raise CannotActError("it sends nothing in a replay")


def facts_of(rule: Rule, decision: Decision, profile: str) -> dict[str, str]:
    """The values of all placeholders that a rule may use."""
    at = decision.occurrence.at.astimezone()
    always = {"rule.name": rule.name, "profile.name": profile, "time": f"{at:%H:%M}", "date": f"{at:%Y-%m-%d}"}
    return {**decision.occurrence.facts, **always}


def request_text(request: WriteRequest) -> str:
    """A request as one line of JSON, which is shown for approval and compared before sending."""
    return json.dumps({"path": request.path, "body": request.body()}, ensure_ascii=False, sort_keys=True)


def describe_request(decision: Decision, run: RunDetail | None) -> str:
    """A decision's stored request in one line, or empty if it has none.

    As in `acme/api fix/login: continue “Log in”: Fix it.`; `run` is the cached run that triggered it.
    """
    facts = decision.occurrence.facts
    names = [facts.get("run.repository", ""), facts.get("run.branch", "")]
    about = ""
    if run is not None:
        names = [run.run.repository.label, run.run.branch_name]
        about = f" “{run.summary.asked}”" if run.summary.asked else ""
    try:
        request = json.loads(decision.request_json or "null")
        path = str(request["path"])
        body = request["body"]
        name = unquote(path.split("/")[-2])
        if path.endswith("/cancel"):
            return f"{' '.join(filter(None, names)) or name}: cancel{about}"
        if path.startswith("/external/agents/"):
            return f"{body['repository']}: start the agent {name}"
        action = f"continue{about}"
        if "run_id" not in body or not any(names):
            reference = body["repository"]
            names = [Repository.of(reference["platform"], reference["data"]).label, body.get("branch_name") or ""]
        if "run_id" not in body:
            action = "start a run"
        return f"{' '.join(filter(None, names))}: {action}: {first_line(body['instructions'])}"
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return ""  # Another version of Runwarden stored it.


def result_of(action: Action) -> ActingResult:
    outcome = _OUTCOMES.get(action.state, "failed")
    reason = action.error.message if action.error is not None and outcome != "done" else ""
    may_repeat = action.state == "not_sent" and action.error is not None and error_kind(action.error.kind).passes
    return ActingResult(outcome, reason, action.action_id, action.result_id, may_repeat)


def make_alert(do: DoNotify, decision: Decision, facts: Mapping[str, str], profile: str) -> Alert:
    subject = facts.get("run.repository") or facts.get("host.platform") or facts.get("action.id") or ""
    status = facts.get("run.status") or facts.get("host.status", "")
    word = status or ("outcome unknown" if "action.id" in facts else "")
    title = fill(do.title, facts) or f"{decision.rule}: {subject} {word}".rstrip(": ")
    # A lasting state is announced a while after it began.
    since = ""
    if "host.platform" in facts:
        since = f"since {decision.occurrence.at.astimezone():%H:%M:%S}"
    usual = filter(None, [facts.get("run.branch"), facts.get("run.id"), since, profile])
    text = fill(do.text, facts) or " · ".join(usual)
    about = {name.partition(".")[2]: value for name, value in facts.items() if name.startswith(("run.", "host."))}
    if "id" in about:
        about["run_id"] = about.pop("id")
    # The inbox key of its subject; when that problem is over, this is reported too.
    match decision.occurrence.identity.partition(":")[0]:
        case "run" if facts.get("run.status") == "failed":
            group = f"failed:{facts['run.repository']}"
        case "stuck":
            group = f"stuck:{facts['run.id']}"
        case "health" if facts.get("host.status") != "recovered":
            group = f"host:{facts['host.platform']}"
        case "action":
            group = f"action:{facts['action.id']}"
        case _:
            group = f"rule:{decision.rule}"
    key = f"automation:{decision.rule}:{decision.occurrence.identity}"
    level: Level = "error" if group.startswith("host:") else _LEVELS.get(status, "warning")
    unsent = own_alert(key, group, level, title, text, decision.occurrence.at, about)
    return replace(unsent, source=decision.rule, route=do.route)


async def propose(
    engine: Engine, request: WriteRequest, run: Run | None = None, key: str = ""
) -> tuple[Decision, bool]:
    """Put a request up for approval. Returns the decision, and whether it is new: an equal request waits only once.

    The proposal expires if its run changes its status first, unless it is a cancellation. The ledger sends at most one
    request with the same `key`, if there is one. If too many proposals are waiting, raise `CannotActError`.
    """
    state = engine.usable_state()
    now = engine.clock()
    rule = PROPOSALS[request.kind]
    names = {rule.name for rule in PROPOSALS.values()}
    manual = manual_occurrence(now, run)
    facts = {**manual.facts, "key": key}
    if isinstance(request, CancelRun):
        del facts["run.status"]
    conversation = "" if run is None else await state.conversation(run.run_id)
    request_json = request_text(request)
    digest = hashlib.sha256(f"{key} {request_json}".encode()).hexdigest()
    n = 0
    while True:
        occurrence = replace(manual, identity=f"proposed:{digest}:{n}", conversation=conversation, facts=facts)
        waiting = [proposal for proposal in await state.open_decisions() if proposal.rule in names]
        for proposal in waiting:
            if proposal.occurrence.identity == occurrence.identity:
                return proposal, False
        if len(waiting) >= MAX_WAITING:
            fix = "Approve or reject some of them first"
            raise CannotActError(f"{MAX_WAITING} proposals are already waiting. {fix}; nothing was proposed.")
        decision = await state.decide(
            rule.name, occurrence, lambda past: decide(rule, manual, past, now), request_json=request_json
        )
        if decision is not None:
            return decision, True
        n += 1  # An equal proposal was made before and is settled.
