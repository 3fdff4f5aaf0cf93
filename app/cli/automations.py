"""`runwarden automations`: the rules of the configuration, in words, before and after they act."""

import getpass
import json
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, get_args

import click

from app.cli.context import Invocation
from app.cli.exits import Exit, failed
from app.cli.options import COUNT, CommandGroup, FactCommand, async_command
from app.cli.output import Column, Format
from app.times import exact_ago, parse_duration, rfc3339, stamp
from storage.records.decision import BY_HAND, Decision, Outcome, RuleState

if TYPE_CHECKING:
    from app.rules.rule import Rule
    from storage.state import State

EXITS: Final = {
    "failed": Exit.FAILED,
    "unknown": Exit.UNKNOWN_OUTCOME,
    "limited": Exit.FAILED,
    "skipped": Exit.FAILED,
}
"""The exit code of `automations run`, by outcome; of every other outcome it is 0."""
NO_RULES: Final = "No automations are configured. See docs/automations.md for some to begin with."
NEXT: Final = 5
"""Fire times that `check` shows."""
TONES: Final = {"done": "good", "failed": "bad", "unknown": "warn", "interrupted": "warn", "waiting": "warn"}


@click.group(cls=CommandGroup)
def automations() -> None:
    """List, check, pause and approve what `runwarden watch` carries out."""


@automations.command("list", cls=FactCommand)
@async_command
async def list_rules(invocation: Invocation, /) -> int:
    """List the automations with their state and next time."""
    now = datetime.now(UTC)
    rules = _rules(invocation)
    async with invocation.state() as state:
        states = await state.rule_states()
        last = {rule.name: next(iter(await state.journal(rule.name, limit=1)), None) for rule in rules}
    entries = [_document(rule, states.get(rule.name), last[rule.name], now) for rule in rules]
    columns: tuple[Column[dict[str, object]], ...] = (
        Column("state", lambda e: str(e["state"]), "state"),
        Column("automation", lambda e: str(e["name"]), "name"),
        Column("does", lambda e: str(e["sentence"]), "sentence", flexible=True),
        Column("next", lambda e: str(e["next"] or ""), "next"),
        Column("last", lambda e: str(e["last"] or ""), "last"),
    )
    invocation.output.listing("automations", entries, entries, columns, empty=NO_RULES)
    return Exit.DONE


@automations.command("check", cls=FactCommand)
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--replay", metavar="TIME", help="Say what they would have done over the cached history, as in 30d.")
@async_command
async def check(invocation: Invocation, /, *, names: tuple[str, ...], replay: str | None) -> int:
    """Say in plain sentences what automations do, when next, and what is odd about them."""
    from app.automations.occurrences import upcoming
    from app.rules.sentence import limits, sentence, warnings

    now, every, silent = datetime.now(UTC), _rules(invocation), invocation.settings().notify.silent
    chosen = [rule for rule in every if not names or rule.name in names]
    if unknown := set(names) - {rule.name for rule in every}:
        raise _no_rule(min(unknown), every)
    replayed = await _replayed(invocation, chosen, _span(replay), now) if replay else {}
    entries = []
    for rule in chosen:
        entry: dict[str, object] = {
            "name": rule.name,
            "enabled": rule.is_on,
            "sentence": sentence(rule, now),
            "limits": limits(rule),
            "next": [rfc3339(at) for at in islice(upcoming(rule, now, now), NEXT)],
            "warnings": list(warnings(rule, every, now, silent)),
        }
        entries.append(entry | ({"replay": replayed[rule.name]} if replay else {}))
    if invocation.output.format.is_json:
        invocation.output.listing("automations", entries, entries, (), empty="")
    elif not entries:
        invocation.output.note(NO_RULES)
    else:
        for entry in entries:
            _print_check(invocation, entry)
    return Exit.DONE


@automations.command("log", cls=FactCommand)
@click.argument("name", required=False)
@click.option("--limit", type=COUNT, default=50, show_default=True, help="Maximum number of lines.")
@click.option("--outcome", "outcomes", multiple=True, type=click.Choice(get_args(Outcome)), help="Repeatable.")
@async_command
async def log(invocation: Invocation, /, *, name: str | None, limit: int, outcomes: tuple[Outcome, ...]) -> int:
    """List what was decided and why, newest first."""
    from app.automations.bot import document

    async with invocation.state() as state:
        found = await state.journal(name, limit=limit, outcomes=outcomes)
    now = datetime.now(UTC)
    columns: tuple[Column[Decision], ...] = (
        Column("decision", lambda d: str(d.decision_id), "decision"),
        Column("outcome", lambda d: d.outcome, "outcome", tone=lambda d: TONES.get(d.outcome, "")),
        Column("automation", lambda d: d.rule, "rule"),
        Column("decided", lambda d: exact_ago(d.decided_at, now), "decided_at", lambda d: rfc3339(d.decided_at)),
        Column("set off by", lambda d: d.occurrence.identity, "set_off_by", flexible=True),
        Column("why", lambda d: d.reason, "reason", flexible=True),
        Column("made", lambda d: d.result_id or "", "result_id"),
    )
    entries = [document(decision) for decision in found]
    invocation.output.listing("decisions", entries, found, columns, empty="Nothing has set off an automation yet.")
    return Exit.DONE


@automations.command("pause", cls=FactCommand)
@click.argument("name")
@async_command
async def pause(invocation: Invocation, /, *, name: str) -> int:
    """Pause an automation; what would set it off is entered as skipped."""
    rule = _rule(invocation, name)
    async with invocation.state() as state:
        await _begin(state, rule)
        done = await state.pause(rule.name, f"{BY_HAND}{getpass.getuser()}")
    return _print_change(invocation, rule, "paused", changed=done)


@automations.command("resume", cls=FactCommand)
@click.argument("name")
@async_command
async def resume(invocation: Invocation, /, *, name: str) -> int:
    """Let a paused automation act again; what came in between stays undone."""
    rule = _rule(invocation, name)
    async with invocation.state() as state:
        done = await state.resume(rule.name)
    return _print_change(invocation, rule, "resumed", changed=done)


@automations.command("approve", cls=FactCommand)
@click.argument("decision", type=COUNT)
@async_command
async def approve(invocation: Invocation, /, *, decision: int) -> int:
    """Approve what waits for it, by the number that `automations log` shows; it is sent as it was shown."""
    async with invocation.state() as state:
        held = await state.decision(decision)
        if held is None or held.outcome != "waiting":
            was = "There is no such decision" if held is None else f"Decision {decision} does not wait: {held.outcome}"
            raise failed("not_found", f"{was}. See: runwarden automations log --outcome waiting")
        if not await state.take(decision, "waiting", "approved", f"approved by {getpass.getuser()}"):
            raise failed(
                "not_found", f"Decision {decision} no longer waits. See: runwarden automations log {held.rule!r}"
            )
    output = invocation.output
    document: dict[str, object] = {"decision": decision, "rule": held.rule, "outcome": "approved", "request": None}
    pairs, body = [("approved", f"{decision}"), ("automation", held.rule)], ""
    if held.request_json is not None:
        request = json.loads(held.request_json)
        document["request"], body = {"method": "POST", **request}, output.json(request["body"])
        pairs.append(("request", f"POST {request['path']}"))
    if output.format is Format.TABLE:  # A field would be cut off.
        output.record(document, pairs)
        if body:
            output.print(body)
    else:
        output.record(document, [*pairs, ("body", body)])
    return Exit.DONE


@automations.command("run", cls=FactCommand)
@click.argument("name")
@click.option("--run", "run_id", metavar="RUN_ID", help="The run that it is about, where the automation needs one.")
@async_command
async def run(invocation: Invocation, /, *, name: str, run_id: str | None) -> int:
    """Set an automation off now, within its limits; what became of it is its last line in the log."""
    from app.automations.acting import CannotActError
    from app.automations.bot import Bot, document

    rule, settings, seen = _rule(invocation, name), invocation.settings(), list[Decision]()
    bot = Bot(settings, invocation.profile(settings), lambda *_, **__: None, seen.append)
    try:
        await bot.open()
        await bot.set_off(rule, run_id)
    except CannotActError as error:
        raise failed("usage", f"{rule.name}: {error}.") from error
    finally:
        await bot.close()
    if not seen:
        raise failed("wrong_state", f"{rule.name} was set off at this very moment. See: runwarden automations log")
    last = seen[-1]
    pairs = [("outcome", last.outcome), ("why", last.reason), ("made", last.result_id or "")]
    invocation.output.record(document(last), [pair for pair in pairs if pair[1]])
    return EXITS.get(last.outcome, Exit.DONE)


def _rules(invocation: Invocation) -> tuple["Rule", ...]:
    from app.automations.assembly import rules_of

    settings = invocation.settings()
    return rules_of(settings.automations, invocation.profile(settings).name)


def _rule(invocation: Invocation, name: str) -> "Rule":
    rules = _rules(invocation)
    found = next((rule for rule in rules if rule.name.casefold() == name.casefold()), None)
    if found is None:
        raise _no_rule(name, rules)
    return found


def _no_rule(name: str, rules: tuple["Rule", ...]) -> Exception:
    there_are = ", ".join(rule.name for rule in rules) or "none"
    return failed("not_found", f"There is no automation {name!r}. There are: {there_are}.")


async def _begin(state: "State", rule: "Rule") -> None:
    from app.rules.rule import fingerprint

    await state.begin_rule(rule.name, fingerprint(rule), datetime.now(UTC))


def _print_change(invocation: Invocation, rule: "Rule", word: str, *, changed: bool) -> int:
    invocation.output.record({"name": rule.name, "changed": changed}, [(word if changed else "unchanged", rule.name)])
    return Exit.DONE


def _document(rule: "Rule", state: RuleState | None, last: Decision | None, now: datetime) -> dict[str, object]:
    from app.automations.occurrences import upcoming
    from app.rules.sentence import sentence

    word = "off" if not rule.is_on else "paused" if state is not None and state.paused else "on"
    coming = next(upcoming(rule, state.since if state else now, now), None) if word == "on" else None
    return {
        "name": rule.name,
        "state": word,
        "paused": state.paused if state else None,
        "sentence": sentence(rule, now),
        "next": rfc3339(coming),
        "last": last.outcome if last else None,
    }


def _span(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise failed("usage", str(error), field="replay") from error


async def _replayed(invocation: Invocation, rules: list["Rule"], span: timedelta, now: datetime) -> dict[str, object]:
    from app.automations.bot import document
    from app.automations.replay import replay

    async with invocation.engine(needs_token=False) as engine:
        found = await replay(engine, rules, now - span, now)
    return {
        name: {
            "counts": each.counts,
            "held_since": rfc3339(each.held_since),
            "newest": [document(one) for one in each.newest],
        }
        for name, each in found.items()
    }


def _print_check(invocation: Invocation, entry: dict[str, object]) -> None:
    output = invocation.output
    output.text(f"{entry['name']}{'' if entry['enabled'] else ' (off)'}")
    output.text(f"  {entry['sentence']}")
    output.text(f"  {entry['limits']}")
    for at in entry["next"] if isinstance(entry["next"], list) else ():
        output.text(f"  next     {stamp(datetime.fromisoformat(str(at)))}")
    for line in entry["warnings"] if isinstance(entry["warnings"], list) else ():
        output.text(f"  warning  {line}")
    replayed = entry.get("replay")
    if isinstance(replayed, dict):
        from app.automations.replay import WORDS

        counts = ", ".join(f"{count} {WORDS.get(outcome, outcome)}" for outcome, count in replayed["counts"].items())
        output.text(f"  replay   {counts or 'nothing would have set it off'}")
        output.text(f"           {_held(replayed['held_since'])}")
        for one in replayed["newest"]:
            output.text(f"           {one['at']} {one['outcome']}: {one['set_off_by']} {one['reason'] or ''}")
    output.text("")


def _held(since: str | None) -> str:
    if since is None:
        return "nothing of that time is known to be held completely"
    return f"what could have set it off is held since {stamp(datetime.fromisoformat(since))}"
