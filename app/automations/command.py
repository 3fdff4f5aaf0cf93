"""`runwarden automations`: explains, controls and approves the rules of the configuration."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, get_args

import click

from app.automations.acting import CannotActError
from app.automations.bot import Bot, document, rules_of, working_process
from app.automations.fire_times import upcoming
from app.automations.replay import WORDS, Replayed, replay
from app.automations.rule import Rule, fingerprint
from app.automations.sentence import limits, sentence, warnings
from app.cli import Format
from app.cli.context import Invocation
from app.cli.exits import Exit, command_error
from app.cli.options import COUNT, CommandGroup, async_command, completion_of, reading
from app.cli.output import Column, Output
from app.engine.files import author_of, login
from app.engine.times import exact_ago, parse_duration, rfc3339, stamp
from storage.records.decision import BY_HAND, AnswerWord, Decision, Outcome

EXITS: Final = {"failed": Exit.FAILED, "unknown": Exit.UNKNOWN_OUTCOME, "limited": Exit.FAILED, "skipped": Exit.FAILED}
NO_RULES: Final = "No automations are configured. See docs/use/automations.md for examples."
NEXT: Final = 5
TONES: Final = {"done": "good", "failed": "bad", "unknown": "warn", "interrupted": "warn", "waiting": "warn"}

NAME: Final = click.argument("name", shell_complete=completion_of("automations"))


automations = CommandGroup(
    "automations", help="List, check, pause, approve and run automations, which `runwarden watch` carries out."
)


@automations.command("list")
@async_command
async def list_rules(invocation: Invocation, /) -> int:
    """List the automations with their state and next time."""
    now = datetime.now(UTC)
    rules = _rules(invocation)
    entries = []
    async with invocation.state() as state:
        states = await state.rule_states()
        for rule in rules:
            its = states.get(rule.name)
            last = await state.journal(rule.name, limit=1)
            word = "on"
            coming = None
            if not rule.is_on:
                word = "off"
            elif its and its.paused:
                word = "paused"
            else:
                coming = next(upcoming(rule, its.since if its else now, now), None)
            entry: dict[str, object] = {
                "name": rule.name,
                "state": word,
                "paused": its.paused if its else None,
                "sentence": sentence(rule, now),
                "next": rfc3339(coming),
                "last": last[0].outcome if last else None,
            }
            entries.append(entry)
    columns: tuple[Column[dict[str, object]], ...] = (
        Column("state", name="state"),
        Column("automation", name="name"),
        Column("does", name="sentence", flexible=True),
        Column("next", name="next"),
        Column("last", name="last"),
    )
    invocation.output.listing("automations", entries, columns, empty=NO_RULES)
    return Exit.DONE


@automations.command("check")
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=completion_of("automations"))
@click.option(
    "--replay",
    "period",
    callback=reading(parse_duration),
    metavar="TIME",
    help="Replay them over this much cached history, as in 30d.",
)
@async_command
async def check(invocation: Invocation, /, *, names: tuple[str, ...], period: timedelta | None) -> int:
    """Explain automations in plain sentences, with their next times and warnings about likely mistakes."""
    now = datetime.now(UTC)
    every = _rules(invocation)
    settings = invocation.settings()
    chosen = [rule for rule in every if not names or rule.name in names]
    if unknown := set(names) - {rule.name for rule in every}:
        raise _no_rule(invocation, min(unknown), every)
    entries: list[dict[str, Any]] = [
        {
            "name": rule.name,
            "enabled": rule.is_on,
            "sentence": sentence(rule, now),
            "limits": limits(rule),
            "next": [rfc3339(at) for at in islice(upcoming(rule, now, now), NEXT)],
            "warnings": list(warnings(rule, every, now, settings.notify.silent)),
        }
        for rule in chosen
    ]
    replayed = dict[str, Replayed]()
    if period is not None:
        async with invocation.engine(needs_token=False) as engine:
            replayed = await replay(engine, chosen, now - period, now)
        for entry in entries:
            result = replayed[entry["name"]]
            newest = [document(decision) for decision in result.newest]
            held_since = rfc3339(result.held_since)
            entry["replay"] = {"counts": result.counts, "held_since": held_since, "newest": newest}
    output = invocation.output
    if output.format.is_json:
        output.listing("automations", entries, ())
        return Exit.DONE
    others = {rule.profile for rule in settings.automations if rule.profile and rule not in every}
    if others and not names:
        output.note(f"Not shown: automations of other profiles. Add --profile: {', '.join(sorted(others))}.")
    elif not entries:
        output.note(NO_RULES)
    for entry in entries:
        past = replayed.get(entry["name"])
        for line in (*_rule_lines(entry), *(() if past is None else _replay_lines(past)), ""):
            output.text(line)
    return Exit.DONE


def _rule_lines(entry: dict[str, Any]) -> Iterator[str]:
    yield entry["name"] if entry["enabled"] else f"{entry['name']} (off)"
    yield f"  {entry['sentence']}"
    yield f"  {entry['limits']}"
    for at in entry["next"]:
        yield f"  next     {stamp(datetime.fromisoformat(at))}"
    for warning in entry["warnings"]:
        yield f"  warning  {warning}"


def _replay_lines(past: Replayed) -> Iterator[str]:
    counts = ", ".join(f"{count} {WORDS.get(outcome, outcome)}" for outcome, count in past.counts.items())
    yield f"  replay   {counts or 'nothing would have triggered it'}"
    if past.held_since:
        yield f"           history complete since {stamp(past.held_since)}"
    else:
        yield "           the cached history of that time is incomplete: there may have been more"
    if sum(past.counts.values()) > len(past.newest):
        yield f"           the newest {len(past.newest)}:"
    for decision in past.newest:
        what_for = f"{stamp(decision.occurrence.at)} {decision.outcome}: {decision.occurrence.cause}"
        yield f"           {what_for} {decision.reason}"


@automations.command("log")
@click.argument("name", required=False, shell_complete=completion_of("automations"))
@click.option("--limit", type=COUNT, default=50, show_default=True, help="Maximum number of decisions.")
@click.option("--outcome", "outcomes", multiple=True, type=click.Choice(get_args(Outcome)), help="Repeatable.")
@async_command
async def log(invocation: Invocation, /, *, name: str | None, limit: int, outcomes: tuple[Outcome, ...]) -> int:
    """List decisions with their reasons, newest first."""
    async with invocation.state() as state:
        decisions = await state.journal(name, limit=limit, outcomes=outcomes)
        counts = await state.outcomes()
    now = datetime.now(UTC)
    columns: tuple[Column[Decision], ...] = (
        Column("decision", lambda d: str(d.decision_id), "decision"),
        Column("outcome", lambda d: d.outcome, "outcome", tone=lambda d: TONES.get(d.outcome, "")),
        Column("automation", lambda d: d.rule, "rule"),
        Column("decided", lambda d: exact_ago(d.decided_at, now), "decided_at", lambda d: rfc3339(d.decided_at)),
        Column("trigger", lambda d: d.occurrence.cause, "set_off_by", lambda d: d.occurrence.identity, flexible=True),
        Column("why", lambda d: d.why, "reason", lambda d: d.reason, flexible=True),
        Column("made", lambda d: d.result_id or "", "result_id"),
    )
    entries = [document(decision) for decision in decisions]
    invocation.output.listing("decisions", entries, columns, decisions, empty="No automation was triggered yet.")
    history = sum(count for (rule, outcome), count in counts.items() if outcome == "history" and name in {None, rule})
    if history and not outcomes:
        invocation.output.note(f"Not listed: {history:,} from before a rule was active (--outcome history).")
    return Exit.DONE


@automations.command("pause")
@NAME
@async_command
async def pause(invocation: Invocation, /, *, name: str) -> int:
    """Pause an automation; events that would trigger it are recorded as skipped."""
    rule = _rule(invocation, name)
    async with invocation.state() as state:
        await state.begin_rule(rule.name, fingerprint(rule), datetime.now(UTC))
        done = await state.pause(rule.name, f"{BY_HAND}{login()}")
    invocation.output.record({"name": rule.name, "changed": done}, [("paused" if done else "unchanged", rule.name)])
    return Exit.DONE


@automations.command("resume")
@NAME
@async_command
async def resume(invocation: Invocation, /, *, name: str) -> int:
    """Resume a paused automation; it does not catch up on skipped events."""
    rule = _rule(invocation, name)
    async with invocation.state() as state:
        done = await state.resume(rule.name)
    invocation.output.record({"name": rule.name, "changed": done}, [("resumed" if done else "unchanged", rule.name)])
    return Exit.DONE


NUMBERS: Final = click.argument("decisions", nargs=-1, required=True, type=COUNT, metavar="DECISION...")


@automations.command("approve")
@NUMBERS
@async_command
async def approve(invocation: Invocation, /, *, decisions: tuple[int, ...]) -> int:
    """Approve waiting decisions, numbered as in `automations log`; their requests are sent as shown."""
    return await _answer(invocation, decisions, "approved")


@automations.command("reject")
@NUMBERS
@async_command
async def reject(invocation: Invocation, /, *, decisions: tuple[int, ...]) -> int:
    """Reject waiting decisions, numbered as in `automations log`; their requests are never sent."""
    return await _answer(invocation, decisions, "rejected")


async def _answer(invocation: Invocation, numbers: Sequence[int], word: AnswerWord) -> int:
    """Record the answer and print each decision with its request; if one is not waiting, none is answered."""
    numbers = tuple(dict.fromkeys(numbers))
    documents = list[dict[str, Any]]()
    async with invocation.state() as state:
        for number in numbers:
            decision = await state.decision(number)
            if decision is None or decision.outcome != "waiting":
                problem = "There is no such decision"
                if decision is not None:
                    problem = f"Decision {number} is not waiting: {decision.outcome}"
                raise command_error("not_found", f"{problem}. See: runwarden automations log --outcome waiting")
        for number in numbers:
            is_in_time = await state.answer(number, word, author_of("cli"))
            if (decision := await state.decision(number)) is None or not is_in_time:
                raise command_error(
                    "not_found", f"Decision {number} is no longer waiting. See: runwarden automations log"
                )
            documents.append(_answer_document(decision, word))
        bot = await working_process(state, state.clock())
    if bot is None and word == "approved":
        invocation.output.note(f"It is sent as soon as a bot is running: {invocation.command_line} watch")
    _print_answers(invocation.output, documents, word)
    return Exit.DONE


def _answer_document(decision: Decision, word: AnswerWord) -> dict[str, Any]:
    entry = document(decision)
    request_json = decision.request_json
    return {
        "decision": decision.decision_id,
        "rule": decision.rule,
        "outcome": word,
        "request": None if request_json is None else {"method": "POST", **json.loads(request_json)},
        "answered_by": entry["answered_by"],
        "answered_at": entry["answered_at"],
    }


def _print_answers(output: Output, documents: list[dict[str, Any]], word: AnswerWord) -> None:
    is_table = output.format is Format.TABLE
    if not is_table and len(documents) > 1:
        columns: tuple[Column[dict[str, Any]], ...] = (
            Column("decision", name="decision"),
            Column("automation", name="rule"),
            Column("request", name="request", value=lambda row: row["request"] and f"POST {row['request']['path']}"),
            Column("body", name="body", value=lambda row: row["request"] and output.json(row["request"]["body"])),
        )
        output.listing("decisions", documents, columns)
        return
    for row in documents:
        pairs = [(word, f"{row['decision']}"), ("automation", row["rule"])]
        body = ""
        if request := row["request"]:
            body = output.json(request["body"])
            pairs.append(("request", f"POST {request['path']}"))
        output.record(row, pairs if is_table else [*pairs, ("body", body)])
        if is_table and body:  # A table's field would be cut off.
            output.print(body)


@automations.command("run")
@NAME
@click.option("--run", "run_id", metavar="RUN_ID", help="The run to act on, if the automation needs one.")
@async_command
async def run(invocation: Invocation, /, *, name: str, run_id: str | None) -> int:
    """Run an automation now, within its limits; the result is its newest entry in `automations log`."""
    rule = _rule(invocation, name)
    settings = invocation.settings()
    seen = list[Decision]()
    bot = await Bot.open(settings, invocation.profile(settings), lambda *_, **__: None, seen.append)
    try:
        await bot.trigger(rule, run_id)
    except CannotActError as error:
        raise command_error("usage", f"{rule.name}: {error}.") from error
    finally:
        await bot.close()
    if not seen:
        raise command_error(
            "wrong_state", f"{rule.name} was already triggered just now. See: runwarden automations log"
        )
    last = seen[-1]
    pairs = [("outcome", last.outcome), ("why", last.reason), ("made", last.result_id or "")]
    invocation.output.record(document(last), [pair for pair in pairs if pair[1]])
    return EXITS.get(last.outcome, Exit.DONE)


def _rules(invocation: Invocation) -> tuple[Rule, ...]:
    settings = invocation.settings()
    return rules_of(settings.automations, invocation.profile(settings).name)


def _rule(invocation: Invocation, name: str) -> Rule:
    rules = _rules(invocation)
    named = next((rule for rule in rules if rule.name.casefold() == name.casefold()), None)
    if named is None:
        raise _no_rule(invocation, name, rules)
    return named


def _no_rule(invocation: Invocation, name: str, rules: tuple[Rule, ...]) -> Exception:
    for rule in invocation.settings().automations:
        if rule.profile and rule.name.casefold() == name.casefold():
            return command_error(
                "not_found", f"The automation {name!r} is for the profile {rule.profile}: add --profile."
            )
    there_are = ", ".join(rule.name for rule in rules) or "none"
    return command_error("not_found", f"There is no automation {name!r}. There are: {there_are}.")
