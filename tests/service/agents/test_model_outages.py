"""Providers that are down or at a limit: turns wait, one of them tries the provider, and each ends once."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from service.agents.options import Agent, AgentOptions
from service.clock import DAY_MICROS
from service.egress.usage import Usage
from service.store import agents, outages, turns
from service.store.database import Database
from service.store.dispatch import next_turns
from service.store.usage import TurnMeter
from tests.lab import Hang, Received, Respond, Step
from tests.service.agents.model_server import ModelServer
from tests.service.conftest import BOTH, NEEDS_SANDBOX, NOW, Api, Own, accepted, organization, served
from tests.service_process import git
from tests.waiting import eventually, present

ASK = 'curl -sf http://127.0.0.1:3129/v1/messages -d \'{"model": "claude-x"}\' > answer.txt || exit 1; cat > turn.json'
AWAY = Respond(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
SINCE = re.compile(r"(waiting for )?127\.0\.0\.1:\d+( has not answered)? since \d{4}-\d\d-\d\d \d\d:\d\d UTC")


def settings(patience_s: float) -> str:
    agent = f"[execution.agent]\nmodel_patience_s = {patience_s}\nmodel_pause_s = 0.2\n"
    return f"[execution]\nconcurrency = 4\ndrain_s = 0.1\n{agent}[limits]\nrequests_per_minute = 100000\n"


def asking(server: ModelServer, **options: Any) -> dict[str, Any]:
    model = {"provider": "anthropic", "key_env": "MODEL_KEY", "base_url": server.origin}
    return {"name": "asker", "argv": ["sh", "-c", ASK], "model": model, "timeout_s": 3000} | options


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[float], Any]]:
    """`services(patience_s)` is a service with this patience, shared by the tests that do not kill it."""
    with ExitStack() as stack:

        @cache
        def get(patience_s: float) -> Any:
            options = {"settings": settings(patience_s), "environment": {"MODEL_KEY": "sk-the-key"}}
            return stack.enter_context(served(tmp_path_factory, "patient", **options))

        yield get


@pytest.fixture
def asker(services: Callable[[float], Any], own: Own, server: ModelServer) -> Callable[..., Any]:
    """`asker(patience_s, argv=…)` makes an organization with an agent that calls its model, and a repository."""
    return lambda patience_s=600.0, **agent: own(on=services(patience_s), agents=[asking(server, **agent)])


def last_turn(api: Api, run_id: str) -> dict[str, Any]:
    return dict(api.turns(run_id)[-1])


def outage(api: Api, repository: Path, server: ModelServer, number: int, kills: int) -> None:
    """Queue turns while the provider is down, kill the service, and check their results when the provider is back."""
    server.otherwise = lambda _: AWAY
    run_ids = [api.begin("asker", instructions="first")]
    eventually(lambda: SINCE.fullmatch(str(last_turn(api, run_ids[0])["reason"])), "the outage is known")
    run_ids += [api.begin("asker", instructions=f"number {one}") for one in range(1, number)]
    for _ in range(kills):
        server.wait_for(len(server.requests) + 3)
        told = [last_turn(api, run_id) for run_id in run_ids]
        away = api.service.admin("status")["model_outages"]
        listed = list(api.runs())

        assert {one["status"] for one in listed} <= {"queued", "working"}
        assert sum(one["status"] == "working" for one in listed) <= 1
        assert all(SINCE.fullmatch(str(one["reason"])) for one in told), told
        assert [one["turns"] for one in away if one["turns"]] == [number], "another test's outage has none"
        api.service.kill()
        api.service.restart()
        api = Api(api.service, api.organization)
    server.wait_for(len(server.requests) + 3)
    server.otherwise = None
    ended = [api.ended(run_id) for run_id in run_ids]
    commits = [git("log", "--format=%s", f"main..{run['branch_name']}", cwd=repository).split("\n") for run in ended]
    used = [last_turn(api, run_id)["usage"]["requests"] for run_id in run_ids]

    assert [run["status"] for run in ended] == ["completed"] * number, [last_turn(api, one) for one in run_ids]
    assert [len(one) for one in commits] == [1] * number
    assert used == [1] * number


LONG = (pytest.mark.campaign, pytest.mark.timeout(1800))


@NEEDS_SANDBOX
@pytest.mark.parametrize(
    ("number", "kills", "patience_s"),
    [(3, 1, 600), pytest.param(50, 2, 600, marks=LONG), pytest.param(50, 2, 0.5, marks=LONG)],
)
def test_during_an_outage_one_turn_probes_and_none_fails(
    asker: Callable[..., Any], server: ModelServer, number: int, kills: int, patience_s: float
) -> None:
    """The others stay queued with the reason, even over kills, and each ends once.

    A turn that cannot wait long gives its slot back, and is resumed later.
    """
    outage(*asker(patience_s), server, number, kills)


@NEEDS_SANDBOX
def test_a_turn_is_resumed_when_the_limit_ends(
    asker: Callable[..., Any], server: ModelServer, stand_in: Callable[[str], Path]
) -> None:
    """The turn gives its slot back and says until when; if it is cancelled, its diff is kept."""
    api, repository = asker(0.5, preset="claude-code", argv=[str(stand_in("claude"))])
    limited, wait_s = 2, 4

    def answer(request: Received) -> Step:
        if len(server.questions) == limited:
            return Respond(429, {"error": {"message": "Slow down"}}, {"Retry-After": str(wait_s)})
        return server.answer(request)

    def waiting(run_id: str) -> str:
        return next((one for one in [str(last_turn(api, run_id)["reason"])] if "resumes" in one), "")

    server.otherwise = answer
    run_id = api.begin("asker", instructions="Ask twice.")
    told = eventually(lambda: waiting(run_id), "it waits", 20)
    run = api.ended(run_id)
    turn = last_turn(api, run_id)
    notes = git("show", f"{run['branch_name']}:notes.txt", cwd=repository)
    limited, wait_s = len(server.questions) + 2, 4000
    other = api.begin("asker", instructions="Ask twice.")
    eventually(lambda: waiting(other), "it waits")
    api.post(f"/external/runs/{other}/cancel", {})
    cancelled = last_turn(api, other)
    patch = api.get(f"/external/runs/{other}/turns/1/diff").text

    said = r"resumes \d{4}-\d\d-\d\d \d\d:\d\d UTC: .* answered 429 for m: Slow down; raise the limits.*"
    assert re.fullmatch(said, told)
    assert (run["status"], turn["reason"], turn["usage"]["requests"]) == ("completed", None, 3), api.log(run_id)
    assert notes.count("Ask twice.") == 2, "it remembers what it was told before"
    assert "what it changed is in the checkout" in api.log(run_id)
    assert (cancelled["outcome"], cancelled["files"]) == ("cancelled", 1)
    assert "+after the first answer" in patch


@NEEDS_SANDBOX
def test_a_limit_that_does_not_end_within_a_day_fails_the_turn(asker: Callable[..., Any], server: ModelServer) -> None:
    """The failure is in plain words, and the turns behind it start."""
    api, _ = asker()
    for days in (2, 9999):
        server.script(Respond(429, {"error": {"message": "Slow down"}}, {"Retry-After": str(days * 86_400)}))
        failed = api.begin("asker", instructions="go")
        run = api.ended(failed)
        turn = last_turn(api, failed)

        assert (run["status"], turn["failure_kind"]) == ("failed", "rate_limited")
        assert turn["reason"].endswith("; a turn waits for its model for a day, and not longer")
    assert api.ended(api.begin("asker", instructions="after"))["status"] == "completed"


@pytest.fixture
def other() -> Iterator[ModelServer]:
    """The fallback's provider."""
    with ModelServer() as made:
        yield made


BEGUN = ("sh", "-c", f"echo begun > asker.txt; {ASK}")
"""An agent that changes a file before it calls its model."""


def falling(server: ModelServer, other: ModelServer, **options: Any) -> list[dict[str, Any]]:
    """An agent, and its fallback for when its provider is down."""
    more = {"argv": BEGUN, "fallback": ["other"], "fallback_after": "1s"}
    return [asking(server, **more | options), asking(other, name="other")]


def fallen(api: Api, other: ModelServer, number: int, kills: int, repository: Path) -> None:
    """Start turns with a dead provider, kill the service while they work, and check that each ended once."""
    run_ids = [api.begin("asker", instructions=f"number {one}") for one in range(number)]
    for kill in range(kills):
        other.wait_for(number * (kill + 1) // (kills + 1) - number // (kills + 2))
        api.service.kill()
        api.service.restart()
    ended = [api.ended(run_id) for run_id in run_ids]
    told = [last_turn(api, run_id) for run_id in run_ids]
    commits = [git("log", "--format=%s", f"main..{run['branch_name']}", cwd=repository).split("\n") for run in ended]
    texts = [git("show", "--name-only", "--format=", run["branch_name"], cwd=repository).split("\n") for run in ended]

    assert [run["status"] for run in ended] == ["completed"] * number, told
    assert [[one.partition(":")[0] for one in each] for each in commits] == [["other"]] * number
    assert all({"answer.txt", "turn.json"} <= {*each} for each in texts)
    assert "asker.txt" in texts[0], "the fallback begins with the kept patch"
    said = re.compile(r"by the fallback other, since asker: [^;]*(Overloaded|waiting for 127\.0\.0\.1:[^;]*)")
    assert [one["agent"] for one in told if said.fullmatch(str(one["reason"]))] == ["other"] * number, told
    assert [one["from_turn"] for one in told] == [None] * number, "a turn never starts from itself"
    # An attempt that was killed after its request is charged as well.
    assert [[*one["usage_by_agent"]] for one in told] == [["other"]] * number


@NEEDS_SANDBOX
@pytest.mark.parametrize(("number", "kills"), [(4, 1), pytest.param(50, 2, marks=LONG)])
def test_during_an_outage_the_fallback_continues(
    services: Callable[[float], Any], own: Own, server: ModelServer, other: ModelServer, number: int, kills: int
) -> None:
    """Each turn ends once, over kills, with one agent at a time; the run, its cost and its commit name the agent."""
    server.otherwise = lambda _: AWAY
    api, repository = own(on=services(600), agents=falling(server, other, fallback_after="2s"))
    fallen(api, other, number, kills, repository)
    by_agent = api.service.admin("usage", "--org", api.organization["id"], "--by", "agent")["usage"]
    server.otherwise = None
    after = api.work("after", "asker")

    assert [(one["agent"], one["turns"]) for one in by_agent] == [("other", number)]
    assert (after["agent"], after["reason"]) == ("asker", None), "the next turn is the run's agent's again"


@NEEDS_SANDBOX
def test_a_fallback_replaces_only_a_long_limit(
    services: Callable[[float], Any], own: Own, server: ModelServer, other: ModelServer
) -> None:
    """A refusal or the agent's own failure does not start it.

    If the fallback is down too, the turn fails with both names.
    """
    api, _ = own(on=services(0.5), agents=falling(server, other, fallback_after="1m"))

    def limited(wait_s: int) -> Respond:
        return Respond(429, {"error": {"message": "Slow down"}}, {"Retry-After": str(wait_s)})

    server.script(limited(2))
    short = api.work("short", "asker")
    server.script(Respond(400, {"error": {"message": "No such thing"}}))
    refused = api.work("refused", "asker")
    server.script(limited(600))
    long = api.work("long", "asker")
    server.script(limited(600))
    other.otherwise = lambda _: AWAY
    both = api.work("both", "asker")

    assert [one["agent"] for one in (short, refused, long, both)] == ["asker", "asker", "other", "other"]
    assert [one["outcome"] for one in (short, refused, long, both)] == ["completed", "failed", "completed", "failed"]
    assert "what it changed is in the checkout" in long["log"]
    assert [one["from_turn"] for one in (short, long, both)] == [None] * 3, "a turn never starts from itself"
    assert re.fullmatch("by the fallback other, since asker: [^;]*Slow down", long["reason"]), "no advice: it is done"
    away = "no agent could work: asker: [^;]*Slow down; other: [^;]*Overloaded; continue the run when it answers again"
    assert re.fullmatch(away, both["reason"]), both
    assert (both["failure_kind"], both["files"]) == ("model_unreachable", 2)


@NEEDS_SANDBOX
def test_a_provider_silent_until_the_time_limit_is_down(
    services: Callable[[float], Any], own: Own, server: ModelServer, other: ModelServer
) -> None:
    """If it was silent for half of the limit, the fallback continues from the turn's changes."""
    late = ("sh", "-c", f"echo begun > asker.txt; sleep 3.5; {ASK}")
    agents = [
        *falling(server, other, timeout_s=4),
        asking(server, name="late", argv=late, timeout_s=4, fallback=["other"]),
    ]
    api, _ = own(on=services(600), agents=agents)
    server.otherwise = lambda _: Hang()
    short = api.work("short", "late")
    before = api.service.admin("status")["model_outages"]
    long = api.work("long", "asker")

    assert (short["failure_kind"], before) == ("timed_out", []), short["log"]
    assert (long["outcome"], long["agent"], long["files"]) == ("completed", "other", 3), long["log"]
    assert re.fullmatch(r"by the fallback other, since asker: 127.* was silent for \d+ s", long["reason"])


def ask_of(database: Database, name: str, key: str | None, owner: str | None = None, **options: Any) -> Agent:
    given = {"model": {"provider": "anthropic", "key_env": key} if key else None} | options
    agent = Agent(name, ("true",), options=AgentOptions.model_validate(given), organization_id=owner)
    with database.write() as connection:
        agents.save(connection, agent, NOW)
    return agent


@BOTH
def test_each_provider_that_is_down_gets_one_probing_turn(database: Database) -> None:
    """A key counts as its own provider; an organization's own agent replaces the one for all."""
    owner = organization(database, "acme", NOW)
    keys = {"a": "ONE", "b": "TWO", "c": "SIX", "d": None}
    models = {name: ask_of(database, name, key) for name, key in keys.items()}
    ask_of(database, "own", "ONE")
    ask_of(database, "own", "SIX", owner)
    for name in ["a", "b", "c", "d", "own"]:
        for _ in range(2):
            accepted(database, "acme", agent=name, now=NOW)
    with database.write() as connection:
        for name in ("a", "b"):
            assert outages.begin(connection, models[name].options.model, NOW) == NOW  # type: ignore[arg-type]
        found = next_turns(connection, 20, None, NOW)
        turns.mark_dispatched(connection, [(one.run_id, one.number) for one in found], NOW)
        more = next_turns(connection, 20, None, NOW)
        waiting = [(one.shown, number) for one, number in outages.ProviderOutages(connection).waiting(connection)]
        outages.end(connection, models["a"].options.model.source)  # type: ignore[union-attr]
        last = next_turns(connection, 20, None, NOW)

    assert (len(found), more, len(last)) == (8, [], 1)
    assert waiting == [("Anthropic", 2), ("Anthropic", 2)]


def test_turns_with_a_fallback_begin_during_an_outage(database: Database) -> None:
    """The turns begin once the provider was down for `fallback_after`, unless the fallback's provider is down too."""
    owner = organization(database, "acme", NOW)
    first = ask_of(database, "a", "ONE", fallback=["gone", "b"], fallback_after="1h")
    second = ask_of(database, "b", "TWO", owner)
    asking_now, *others = [accepted(database, "acme", agent="a", now=NOW) for _ in range(3)]
    hour = DAY_MICROS // 24
    with database.write() as connection:
        outages.begin(connection, present(first.options.model), NOW)
        found = [len(next_turns(connection, 20, None, NOW + at)) for at in (hour, hour + 1)]
        turns.mark_dispatched(connection, [(asking_now.id, 1)], NOW)
        sources = outages.ProviderOutages(connection)
        probed = [sources.is_probed(connection, run) for run in (asking_now, *others)]
        name, why = present(sources.stand_in(owner, "a", NOW + hour + 1))
        outages.begin(connection, present(second.options.model), NOW)
        none = next_turns(connection, 20, None, NOW + hour + 1)

    assert (found, probed, none) == ([1, 3], [False, True, True], [])
    assert (name, why["gone"]) == ("b", "it is not configured")


def test_an_outage_ends_with_the_first_answer(database: Database) -> None:
    """A turn that is the only one without an answer fails alone."""
    organization(database, "acme", NOW)
    agent = ask_of(database, "a", "ONE")
    now = [NOW]

    def meter() -> TurnMeter:
        run = accepted(database, "acme", agent="a", now=NOW)
        with database.read() as connection:
            turn = present(turns.by_number(connection, run.id, 1))
        return TurnMeter(database, turn, agent, lambda: now[0])

    one, other = meter(), meter()
    first = one.away_s()
    now[0] += 1_000_000
    second = one.away_s(), other.away_s()
    other.add("m", Usage(), None)
    now[0] += 1_000_000

    assert (first, second) == (0, (1, 1))
    assert (one.away_s(), other.away_s()) == (None, 0)


@BOTH
def test_a_paused_turn_begins_when_it_is_due(database: Database) -> None:
    """The turn begins once, not earlier, and not if it was cancelled; pauses without any answer do not count."""
    organization(database, "acme", NOW)
    run = accepted(database, "acme", now=NOW)
    with database.write() as connection:
        turns.mark_dispatched(connection, [(run.id, 1)], NOW)
        _, turn = present(turns.claim(connection, run.id, 1, "worker", NOW))
        paused = turns.TurnPause(NOW + DAY_MICROS, "resumes", is_counted=False)
        done = [turns.pause(connection, turn, paused, NOW) for _ in range(2)]
        early = next_turns(connection, 5, None, NOW + DAY_MICROS - 1)
        due = next_turns(connection, 5, None, NOW + DAY_MICROS)
        _, again = present(turns.claim(connection, run.id, 1, "another", NOW))
        late = turns.pause(connection, turn, paused, NOW)

    assert (done[0], early, [one.run_id for one in due], late) == (True, [], [run.id], False)
    assert (again.attempt, again.pauses, again.failure) == (2, 1, None)
