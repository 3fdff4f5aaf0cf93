"""The runner acts on each occurrence at most once, and journals each decision with its reason."""

import asyncio
import re
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from app.automations.acting import ActingResult
from app.automations.rule import fingerprint
from app.automations.sentence import warnings
from app.profiles.load import parse
from storage.claims import Owner, this_process
from storage.errors import DiskFullError, StorageError
from tests.automations.conftest import Place, rule
from tests.waiting import until

HOURLY = '{ schedule = "0 * * * *" }'
START = '{ start = "go", repository = "acme/api" }'
CONTINUE = '{ continue = "go" }'
COMMAND = '{ command = ["true"] }'
WEB = '{ run = "failed", repository = "acme/web" }'
BAD, LOST = '{ health = "not ok", for = "1m" }', '{ action = "unknown", older = "1m" }'
DOWN = "host down; +1m; host down; +1m; host down"
MADE = ActingResult("done", result_id="run_1")
NOT_YET = ActingResult("failed", "not yet", may_repeat=True)
NO = ActingResult("failed", "no such agent")
TIME = re.compile(r"\+?(-?\d+)([dhms])")
OTHER, WRITES = rule(name='"s"'), rule(name='"w"', do=CONTINUE)
UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}


async def play(place: Place, texts: list[str], steps: str) -> None:
    """Play the steps in order with these rules, in one process after another."""
    runner, which = place.runner(texts[0]), 0
    for step in map(str.strip, re.split("[;\n]", steps.strip())):
        match step.split(maxsplit=2):
            case [time] if found := TIME.fullmatch(time):
                place.move(**{UNITS[found[2]]: int(found[1])})
            case ["look"]:
                await place.answered()
                await runner.decide_and_act()
            case ["glance"]:
                await runner.decide_and_act()
            case ["next" | "rules", *number]:
                which = int(number[0]) if number else which
                runner = await place.begun(texts[which])
            case ["approve"]:
                await place.approve()
            case ["pause", name, why]:
                await place.state.pause(name, why)
            case ["resume", name]:
                await place.state.resume(name)
            case ["begin"]:
                await place.state.begin_rule("r", fingerprint(runner.rules[0]), place.now)
            case ["dead"]:
                await place.owned_by(Owner(2**22 + 1, "1", "?", "?"))
            case ["alive"]:
                await place.owned_by(replace(this_process(), pid=1, started="?"))
            case ["stuck", run_id]:
                await place.stuck(run_id)
            case ["unknown", key]:
                await place.unknown_write(key=key)
            case ["resolve"]:
                (action,) = await place.ledger.unresolved()
                await place.ledger.resolve(action.action_id, None)
            case ["host", status]:
                await place.health(github=status)
            case [run_id, status]:
                await place.run(run_id, status)
            case _:
                pytest.fail(f"{step!r} is no step")


LATER = "the rule is paused: 2 failures in a row, the last one: no such agent"
STORIES: dict[str, tuple[list[str], list[ActingResult], str, str, list[str]]] = {
    # The rules, the answers to their actions, the steps, who acted, and the journal's outcomes.
    "a run that fails, once, in this process and the next": (
        [rule()], [], "run_1 working; look; +3m; run_1 failed; look; look; next", "r", ["acting", "done"],
    ),
    # Events before a rule's first poll are history.
    "a time after its first look": (
        [rule(on='{ schedule = "10 12 * * *" }')], [], "+10m; look; look; next; +1d; look; next", "r",
        ["acting", "done"],
    ),
    "a run that is stuck after its first look": (
        [rule(on='{ run = "stuck" }')], [], "+10m; glance; stuck run_1; glance; next; stuck run_2; look; next", "r",
        ["acting", "done"],
    ),
    "a host that is bad after its first look": (
        [rule(on='{ health = "not ok" }')], [],
        "+10m; glance; host down; +2m; host down; glance; next; host ok; +2m; host down; +2m; host down; look; next",
        "r", ["acting", "done"],
    ),
    "a host that passes its limit after its first look": (
        [rule(on='{ health = "not ok", for = "5m" }')], [],
        "host down; +2m; host down; look; +2m; host down; look; +2m; host down; look; +2m; host down; look; next", "r",
        ["acting", "done"],
    ),
    "no host that had passed its limit": (
        [rule(on='{ health = "not ok", for = "5m" }')], [],
        "host down; +6m; host down; look; +2m; host down; look; +2m; host down; look; next", "", [],
    ),
    "nothing from before, though it was paused before its first look": (
        [rule()], [], "run_1 failed; begin; pause r by ann; resume r; look", "", [],
    ),
    "nothing of what failed under a rule that was edited since": (
        [rule(on=WEB), rule()], [], "look; +5m; run_1 failed; next; rules 1; +5m; run_2 failed; next", "r",
        ["acting", "done"],
    ),
    "a rule that was away begins as a new one, and stays paused": (
        [f"{rule()}\n{OTHER}", OTHER], [],
        "look; pause r by ann; +1m; rules 1; +10m; run_1 failed; next; rules 0", "s", ["acting", "done"],
    ),
    "the newest of the times that were missed": (
        [rule(on=HOURLY)], [], "look; +5h; +10m; next; next", "r",
        ["acting for 4 missed before it, too", "done"],
    ),
    "no time that is too long ago": (
        [rule(on='{ schedule = "0 13 * * *" }')], [], "look; +5h; next", "", ["skipped 4h00m late; catch_up is 1h00m"],
    ),
    "nothing in quiet hours": (
        [rule(quiet='"00:00-23:59"')], [], "look; +1m; run_1 failed; look", "", ["skipped in quiet hours"],
    ),
    "overlap skips": (
        [rule(on=HOURLY, do=START)], [MADE], "look; run_1 working; +1h; look; +1h; look", "r",
        ["acting", "done", "skipped its run run_1 is still active; overlap is skip"],
    ),
    "overlap queues one": (
        [rule(on=HOURLY, do=START, overlap='"queue"')], [MADE],
        "look; run_1 working; +1h; look; +1h; look; +1h; look; run_1 completed; look", "r r",
        ["acting", "done", "queued waits for its run run_1", "skipped one is queued already; overlap is queue", "done"],
    ),
    "what is queued ends where its rule is paused": (
        [rule(on=HOURLY, do=START, overlap='"queue"')], [MADE],
        "look; run_1 working; +1h; look; +1h; look; pause r by ann; +1m; run_1 completed; look", "r",
        ["acting", "done", "queued waits for its run run_1", "skipped the rule is paused: by ann"],
    ),
    "what is queued counts towards the limits when it acts": (
        [rule(on=HOURLY, do=START, overlap='"queue"', limit="{ per_hour = 1, per_day = 1 }")], [MADE],
        "look; run_1 working; +1h; look; +1h; +1m; look; run_1 completed; look", "r",
        ["acting", "done", "limited 1 in the last 24 hours: limit.per_day"],
    ),
    "what is queued still waits for its approval": (
        [rule(on=HOURLY, do=START, overlap='"queue"', approval="true")], [MADE],
        "look; run_1 working; +1h; look; approve; look; +1h; look; +10m; run_1 completed; look", "r",
        ["waiting", "done", "queued waits for its run run_1", "waiting"],
    ),
    "failures in a row pause it until it is resumed": (
        [rule(pause_after="2")], [NO, NO],
        "look; +1m; a failed; look; +1m; b failed; look; +1m; c failed; look; resume r; +1m; d failed; look", "r r r",
        ["acting", "failed no such agent", "acting", "failed no such agent", f"skipped {LATER}", "acting", "done"],
    ),
    "what is not approved expires": (
        [rule(approval="true")], [], "look; +1m; run_1 failed; look; +25h; look; look", "",
        ["waiting", "expired not approved in time"],
    ),
    "what is approved is sent within its time, once": (
        [rule(do=CONTINUE, approval="true")], [], "look; +1m; run_1 failed; look; approve; +23h; next; look", "r",
        ["waiting", "done"],
    ),
    "nothing approved for a run that goes on": (
        [rule(do=START, approval="true")], [], "look; +1m; run_1 failed; look; approve; run_1 working; next", "",
        ["waiting", "expired the run is working by now"],
    ),
    "nothing approved of a rule that was paused": (
        [rule(do=START, approval="true")], [], "look; +1m; run_1 failed; look; approve; pause r by bob; next", "",
        ["waiting", "skipped the rule is paused: by bob"],
    ),
    "nothing approved for a host that has recovered": (
        [rule(on=BAD, do=START, approval="true")], [],
        f"host ok; look; {DOWN}; look; approve; +1m; host ok; +1m; host ok; +1m; host ok; next", "",
        ["waiting", "expired code host github has recovered by now"],
    ),
    "nothing approved for an outcome that is known": (
        [rule(on=LOST, do=START, approval="true")], [], "look; unknown k; +2m; look; approve; resolve; next", "",
        ["waiting", "expired its outcome is known by now"],
    ),
    "nothing that was approved a day ago": (
        [rule(do=CONTINUE, approval="true")], [], "look; +1m; run_1 failed; look; approve; +25h; next", "",
        ["waiting", "expired approved, but not sent in time"],
    ),
    "a command that was edited while it waited does not run": (
        [rule(do=COMMAND, approval="true"), rule(do='{ command = ["false"] }', approval="true")], [],
        "look; +1m; run_1 failed; look; approve; +10m; rules 1", "", ["waiting", "expired its rule was edited"],
    ),
    "what certainly was not sent is tried again": (
        [rule(do=CONTINUE)], [NOT_YET, NOT_YET],
        "look; +1m; run_1 failed; look; +31s; look; +31s; look; +31s; look", "r r r", ["acting", "done"],
    ),
    "a dead process's command may have run; its write has the ledger": (
        [f"{rule(do=COMMAND)}\n{WRITES}"], [NOT_YET, NOT_YET],
        "look; +1m; run_1 failed; next; dead; next", "r w w",
        ["acting", "acting",
         "interrupted the process ended before the outcome was recorded; it is not repeated", "done"],
    ),
    "what a living process acts on is left to it": (
        [rule()], [NOT_YET], "look; +1m; run_1 failed; next; alive; next", "r", ["acting"],
    ),
    "by a clock a year ahead it begins again, and counts to no limit of today": (
        [rule(on=HOURLY, limit="{ per_hour = 1, per_day = 2 }")], [],
        "+365d; look; +1h; look; +1h; look; +1h; look; -365d; look; +1h; look; next", "r r r",
        ["acting", "done", "acting", "done", "limited", "acting", "done"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("texts", "results", "steps", "acted", "outcomes"), STORIES.values(), ids=STORIES)
async def test_a_rule_acts_on(
    place: Place, texts: list[str], results: list[ActingResult], steps: str, acted: str, outcomes: list[str]
) -> None:
    """The rules act on each occurrence at most once across processes, and the journal explains every decision."""
    place.acts.results = [*results]
    await play(place, texts, steps)

    assert [name for name, _ in place.acts.done] == acted.split()
    found = [f"{outcome} {reason}".strip() for outcome, reason in place.outcomes]
    assert len(found) == len(outcomes), found
    assert [line for line, begin in zip(found, outcomes, strict=True) if not line.startswith(begin)] == [], found


async def test_a_rule_whose_files_fail_holds_up_no_other(place: Place) -> None:
    """A rule whose files fail is tried again, and the other rules act meanwhile."""
    runner = await place.begun("\n".join([rule(do=CONTINUE), rule(name='"s"')]))
    place.acts.raises = {"r": StorageError("the ledger can only be read", path=Path("ledger"))}
    await place.fails(runner)
    assert [name for name, _ in place.acts.done] == ["r", "s"]

    place.acts.raises = {}
    place.move(seconds=31)
    await runner.decide_and_act()
    assert [name for name, _ in place.acts.done] == ["r", "s", "r"]


async def test_a_disk_that_fills_up_after_the_deed_repeats_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the disk is full after a command ran, its outcome is recorded later and the command is not run again."""
    runner = await place.begun(rule())
    place.move(minutes=1)
    await place.run("run_1", "failed")
    with monkeypatch.context() as full:

        async def settle(*_: object) -> None:
            raise DiskFullError("No space left.", path=Path("state.sqlite3"))

        full.setattr(place.state, "settle", settle)
        for _ in range(3):
            with pytest.raises(DiskFullError):
                await runner.decide_and_act()
            place.move(minutes=1)
    await runner.decide_and_act()

    assert len(place.acts.done) == 1
    assert [each.outcome for each in await place.state.journal()] == ["done"]


@pytest.mark.parametrize(("file", "error"), [("state", "start it again"), ("ledger", "Put it back")])
async def test_a_file_that_is_moved_away_is_not_used_any_longer(place: Place, file: str, error: str) -> None:
    """A moved state file is no longer used: a second process would create a new one, and both would act."""
    runner = await place.begun(rule())
    place.move(minutes=1)
    await place.run("run_1", "failed")
    path = (place.state if file == "state" else place.ledger).writer.path
    path.rename(path.with_name("aside"))

    with pytest.raises(StorageError, match=f"moved or deleted.*{error}"):
        await (runner.decide_and_act() if file == "state" else place.unknown_write())
    assert place.acts.done == []


async def test_no_rule_waits_for_another_ones_program(place: Place) -> None:
    """A rule waits for its own earlier program only, even after a reload; a paused rule's next program is skipped."""
    slow, quick = rule(name='"slow"', do=COMMAND, pause_after="1"), rule(name='"quick"', do=COMMAND)
    runner = await place.begun(f"{slow}\n{quick}")
    place.acts.held["slow"] = asyncio.Event()
    for number in (1, 2):
        place.move(minutes=1)
        await place.run(f"run_{number}", "failed")

        async def is_done(number: int = number) -> bool:
            await runner.decide_and_act(waits=False)
            return len(place.acts.done) == number

        await until(is_done, f"the quick rule's program number {number} is done", saw=lambda: place.acts.done)
    assert {name for name, _ in place.acts.done} == {"quick"}
    begun = [each.outcome for each in await place.state.open_decisions() if each.rule == "slow"]
    assert begun == ["acting", "queued"]

    other = place.runner(slow)
    other.attempts, other.programs = runner.attempts, runner.programs
    place.move(minutes=2)
    await other.decide_and_act(waits=False)
    place.acts.results.append(ActingResult("failed", "no"))
    place.acts.held["slow"].set()
    await other.decide_and_act()
    assert [name for name, _ in place.acts.done] == ["quick", "quick", "slow"]
    paused = "the rule is paused: 1 failure in a row, the last one: no"
    assert place.outcomes[-2:] == [("failed", "no"), ("skipped", paused)]


async def test_queued_programs_keep_to_the_limits(place: Place) -> None:
    """Thirty failures during one program do not start thirty programs: limits are checked again before each starts."""
    runner = await place.begun(rule(do=COMMAND, limit="{ per_hour = 3 }"))
    place.acts.held["r"] = asyncio.Event()
    for number in range(30):
        place.move(seconds=1)
        await place.run(f"run_{number}", "failed")
        await runner.decide_and_act(waits=False)
    place.acts.held["r"].set()
    await runner.decide_and_act()

    assert len(place.acts.done) == 3
    assert Counter(outcome for outcome, _ in place.outcomes) == {"acting": 1, "queued": 29, "done": 3, "limited": 27}


# loops: rules that trigger themselves or each other


TO_WEB = '{ start = "go", repository = "acme/web" }'
TO_API = '{ start = "go", repository = "acme/api" }'

CASES = {
    "two that feed each other": [
        rule(name='"a"', on='{ run = "failed", repository = "acme/api" }', do=TO_WEB, overlap='"allow"'),
        rule(name='"b"', on='{ run = "failed", repository = "acme/web" }', do=TO_API, overlap='"allow"'),
    ],
    "by way of a run that completes": [
        rule(name='"a"', do=TO_WEB, overlap='"allow"'),
        rule(name='"b"', on='{ run = "completed" }', do='{ continue = "break it" }', overlap='"allow"'),
    ],
}


@pytest.mark.parametrize("texts", CASES.values(), ids=CASES)
async def test_a_loop_ends_at_its_limit_and_says_so_once(place: Place, texts: list[str]) -> None:
    """A loop stops at its limit, however many turns and runs it makes, and `automations check` warns about it."""
    text = "\n".join(texts)
    rules = parse(Path("/etc/config.toml"), text).automations
    assert any("trigger" in line for each in rules for line in warnings(each, rules, place.now))
    statuses = ("failed", "completed") if "completed" in text else ("failed",)
    place.acts.results = [ActingResult("done", result_id=f"run_{n}") for n in range(2, 60)]
    runner, turns = place.runner(text), 0
    await runner.decide_and_act()
    await place.run("run_1", "working")
    for _ in range(20):
        place.move(minutes=1)
        where = ("acme/api", "acme/web")[turns % 2]
        await place.run(f"run_{turns + 1}", statuses[turns % len(statuses)], repository=where)
        await runner.decide_and_act()
        if len(place.acts.done) > turns:
            turns = len(place.acts.done)
            await place.run(f"run_{turns + 1}", "working", repository=("acme/api", "acme/web")[turns % 2])

    (limited,) = [each for each in place.journal if each.outcome == "limited"]
    assert len(place.acts.done) <= 3 * len(texts)
    assert "limit.per_conversation" in limited.reason
