"""Deliveries: how they are read, which rule matches, and that each is decided once."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Final

import pytest

from service.api.bodies import read_bytes
from service.api.context import Reserve
from service.api.errors import HttpError
from service.api.hooks import authentic, delivery_id, event_of
from service.clock import DAY_MICROS, now_micros, rfc3339
from service.forge.accounts import OwnAccounts
from service.hosts.tokens import HostTokens
from service.rules import HookEvent, PayloadError, TriggerRule
from service.settings import Limits, Settings, TriggerSettings
from service.store import audit, deletions, deliveries, hosts, organizations, repositories, runs, schema, turns
from service.store.database import Database
from service.store.hosts import Host
from service.store.repositories import Repository
from service.store.rows import delete
from service.triggers.receiver import UnknownRepositoryError, WebhookDelivery, receive, start_due
from tests.lab import Respond, Server
from tests.service.conftest import BOTH, NOW, due_jobs, organization
from tests.service.triggers.payloads import SECRET, forgejo, github, gitlab, signed
from tests.waiting import present

FIRST: Final = TriggerRule(agent="reviewer", instructions="nothing to do")


def tenants(
    database: Database, *slugs: str, active_runs: int = 1000, rules: tuple[TriggerRule, ...] = (), **settings: Any
) -> Callable[..., list[str]]:
    """Configure one repository for each organization; return what delivers to all of them."""
    made = Repository("api", "github", "acme/api", "https://h/acme/api.git", triggers=(FIRST, *rules))
    for slug in slugs:
        owner = organization(database, slug)
        with database.write() as connection:
            repositories.save(connection, owner, made, now_micros())
    limits = Limits(active_runs=active_runs)
    chosen = Settings(triggers=TriggerSettings(github_secret_env="S", **settings), limits=limits)

    def deliver(
        delivery: str, sha: str = "f" * 40, proven: str = "S", action: str = "opened", own: Any = None, **given: Any
    ) -> list[str]:
        found = event_of(
            "github", {"x-github-event": "pull_request"}, json.dumps(github(action, sha, **given)).encode()
        )
        made = WebhookDelivery("github", delivery, present(found), frozenset({proven}), None, own or {})
        return [one.result for one in receive(database, chosen, now_micros, made)]

    return deliver


def connect(database: Database, slug: str, api_url: str) -> str:
    """Connect an organization to a code host, with the token in TOKEN_HERE; return the organization's id."""
    host = Host("github", "h", None, "api", api_url, None, "TOKEN_HERE")
    with database.write() as connection:
        owner = present(organizations.by_slug(connection, slug))
        hosts.connect(connection, owner.id, host, now_micros())
    return owner.id


@BOTH
def test_processes_on_one_database_decide_once(database: Database) -> None:
    """Sixteen deliveries at a time for two organizations with one repository give one run each."""
    deliver = tenants(database, "acme", "other")
    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda _: deliver("the same"), range(16)))
    with database.read() as connection:
        entries = deliveries.latest(connection, 100)
        trail = audit.latest(connection, 100, action="trigger")

    assert sorted(map(tuple, results)) == sorted([("started", "started")] + [("duplicate", "duplicate")] * 15)
    assert [(one.result, one.agent) for one in entries] == [("started", "reviewer")] * 2
    assert {one.target for one in trail} == {one.run_id for one in entries}


def test_a_refused_start_leaves_no_run(database: Database) -> None:
    """The reasons are too many active runs or runs this hour, an inactive organization, or another secret."""
    deliver = tenants(database, "acme", active_runs=1, repository_runs_an_hour=2)
    given = [deliver(f"d{index}", f"{index}" * 40, number=index) for index in (1, 2)]
    with database.write() as connection:
        (first,) = deliveries.latest(connection, 1, result="started")
        turns.cancel(connection, first.run_id or "", "done", now_micros())
    given.append(deliver("d3", "3" * 40, number=3))
    with database.write() as connection:
        turns.cancel_all(connection, first.organization_id, "done", now_micros())
    given.append(deliver("d4", "4" * 40, number=4))
    with database.write() as connection:
        organizations.change(connection, first.organization_id, active=False, entitlements=())
        counted = runs.count(connection, runs.Filters(first.organization_id))
    given.append(deliver("d5", "5" * 40, number=5))
    with pytest.raises(UnknownRepositoryError):
        deliver("d6", proven="T")

    assert given == [["started"], ["refused"], ["started"], ["limited"], ["refused"]]
    assert counted == 2


def test_a_newer_head_cancels_the_older_run(database: Database) -> None:
    """Two rules may start an agent on one commit, once each; an older change that arrives later starts nothing."""
    label = TriggerRule(agent="reviewer", instructions="Mend it.", on=("labeled",), labels=("mend",))
    deliver = tenants(database, "acme", rules=(label,))
    given = [
        deliver("d1"),
        deliver("d2", action="labeled", labels=["mend"]),
        deliver("d3", action="labeled", labels=["mend"]),
        deliver("d4", "e" * 40, action="synchronize", at=20),
        deliver("d5", "d" * 40, action="synchronize", at=15),
    ]
    with database.read() as connection:
        found = [one.run_id or "" for one in deliveries.latest(connection, 9, result="started")]
        still_open = turns.open_runs(connection, found)
        reason = turns.of(connection, found[0])[0].failure
        cancelled = [one.target for one in audit.latest(connection, 9, action="run.cancel")]

    assert given == [["started"], ["started"], ["repeated"], ["started"], ["stale"]]
    assert still_open == {found[-1]}
    assert str(reason).startswith(f"cancelled: superseded by {'e' * 12}, a newer head of pull request 7")
    assert set(cancelled) == set(found[:2])


def test_a_closed_pull_request_cancels_its_runs(database: Database) -> None:
    """The runs may be queued, working or waiting for approval; others' runs and a reopened one's stay."""
    fork = TriggerRule(agent="reviewer", instructions="Look.", forks="approve")
    deliver = tenants(database, "acme", rules=(fork,))
    given = [deliver("d1", at=10), deliver("d2", fork="yes", at=11), deliver("d3", number=8)]
    with database.read() as connection:
        found = [one.run_id or "" for one in deliveries.latest(connection, 9, result="started")]
    given += [deliver("d4", action="closed", state="closed", at=20)]
    with database.read() as connection:
        still_open = turns.open_runs(connection, found)
        reason = turns.of(connection, found[0])[0].failure
        waiting = deliveries.latest(connection, 9, result="waiting")
    given += [deliver("d5", "e" * 40, at=40), deliver("d6", action="closed", state="closed", at=30)]

    given += [deliver("d7", action="closed", state="closed", number=9, at=20), deliver("d8", number=9, at=19)]

    assert given[3:] == [["closed"], ["started", "started"], ["stale"], ["closed"], ["stale"] * 2]
    assert (still_open, waiting) == (set(found[-2:]), [])
    assert reason == "cancelled: pull request 7 was closed"


def test_impossible_and_endless_triggers_are_refused(database: Database) -> None:
    """Protected and invalid branches are refused; bots that trigger each other have a daily limit."""
    bots = TriggerRule(agent="reviewer", instructions="Go on.", bots=True)
    deliver = tenants(database, "acme", rules=(bots,), pull_request_runs_a_day=3)
    given = [deliver(head, f"{at}" * 40, head=head, at=at) for at, head in enumerate(("main", "-x"))]
    with database.read() as connection:
        details = [str(one.detail)[:20] for one in deliveries.latest(connection, 9)]
    feeding = {"action": "synchronize", "sender": "other[bot]", "number": 8}
    given += [deliver(f"d{at}", f"{at}" * 40, at=at, **feeding) for at in range(3, 8)]

    assert [one[-1] for one in given] == ["refused"] * 2 + ["started"] * 3 + ["limited"] * 2
    assert {"the branch main is p", "a branch name may no"} <= set(details)


def test_an_old_delivery_starts_no_second_run(database: Database) -> None:
    """The decision on a deleted run remains; since signatures never expire, old deliveries start nothing."""
    deliver = tenants(database, "acme", "other")
    deliver("d1")
    with database.write() as connection:
        first, theirs = (one.run_id or "" for one in deliveries.latest(connection, 9, result="started"))
        deletions.delete_runs(connection, [first], now_micros())
        left = [one.run_id for one in deliveries.latest(connection, 9)]

    assert left == [None, theirs]
    assert [deliver("d1"), deliver("d2")] == [["duplicate"] * 2, ["repeated"] * 2]
    assert deliver("d3", updated_at="2020-01-01T10:00:00Z", number=2) == ["stale"] * 2
    with database.write() as connection:
        delete(connection, schema.deliveries)
    assert deliver("d3", updated_at="2020-01-01T10:00:00Z", number=2) == ["stale"] * 2


def test_acts_of_the_tokens_account_are_the_services_own(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code host is asked once who owns the token; without an answer, nothing is assumed."""
    deliver = tenants(database, "acme")
    with Server() as there:
        there.otherwise = lambda _: Respond(200 if len(there.requests) == 1 else 403, {"login": "Acme-Bot"})
        owner = connect(database, "acme", there.origin)
        own = OwnAccounts(database, HostTokens(database))
        found = []
        for token in ("t1", "t2"):
            monkeypatch.setenv("TOKEN_HERE", token)
            found += [own.of("github", path) for path in ("Acme/api", "acme/api")]
        asked = [(one.target, one.headers["authorization"]) for one in there.requests]

    assert found == [{owner: {"acme-bot"}}] * 2 + [{owner: frozenset()}] * 2
    assert asked == [("/user", "Bearer t1"), ("/user", "Bearer t2")]
    assert own.of("github", "acme/other") == {}
    assert deliver("d1", sender="Acme-Bot", own=found[0]) == ["own"]


def test_an_organizations_account_counts_only_on_its_host(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of a host only counts for organizations on the same host."""
    monkeypatch.setenv("TOKEN_HERE", "t")
    deliver = tenants(database, "acme", "evil", "friend")
    with Server() as forge, Server() as fake:
        forge.otherwise = lambda _: Respond(200, {"login": "Acme-Bot"})
        fake.otherwise = lambda _: Respond(200, {"login": "ann"})
        for slug, there in (("acme", forge), ("evil", fake), ("friend", forge)):
            connect(database, slug, there.origin)
        own = OwnAccounts(database, HostTokens(database)).of("github", "acme/api")

    assert sorted(map(sorted, own.values())) == [["acme-bot"], ["acme-bot"], ["ann"]]
    assert sorted(deliver("d1", sender="ann", own=own)) == ["own", "started", "started"]


def test_large_unauthenticated_bodies_share_a_reserve() -> None:
    """Small bodies are always accepted; the reserve is returned however the request ends."""
    reserve, others = Reserve(1 << 20), list[str]()

    async def read_one(size: int, beside: int = 0) -> str:
        async def stream() -> Any:
            for _ in range(size >> 16):
                yield bytes(1 << 16)
            if beside:
                others.append(await read_one(beside))

        request: Any = SimpleNamespace(stream=stream, headers={})
        try:
            return str(len(await read_bytes(request, 2 << 20, reserve)))
        except HttpError as error:
            return error.error_code

    held = [asyncio.run(read_one(1 << 20, one)) for one in (1 << 19, 3 << 18, 1 << 18, 3 << 20)]
    assert (held, others) == ([str(1 << 20)] * 4, [str(1 << 19), "too_busy", str(1 << 18), "too_busy"])
    assert asyncio.run(read_one(5 << 18)) == str(5 << 18)


SHA: Final = "a1b2c3d4" * 5
GITHUB: Final = ("github", {"x-github-event": "pull_request"}, github)
FORGEJO: Final = ("forgejo", {"x-github-event": "pull_request"}, forgejo)
GITLAB: Final = ("gitlab", {"x-gitlab-event": "Merge Request Hook"}, gitlab)


def event(host: Any, action: str, **given: Any) -> HookEvent | None:
    """Return what a payload says."""
    platform, headers, payload = host
    return event_of(platform, headers, json.dumps(payload(action, SHA, **given)).encode())


def test_events_of_all_hosts_have_one_form() -> None:
    """All hosts' events have one form; an event that no rule can use is None."""
    draft, ready = ({"draft": {"previous": not now, "current": now}} for now in (True, False))
    for host, action, given, kind in (
        (GITHUB, "opened", {}, "opened"),
        (GITHUB, "synchronize", {}, "pushed"),
        (GITHUB, "closed", {"state": "closed"}, "closed"),
        (GITHUB, "edited", {}, None),
        (GITHUB, "synchronize", {"state": "closed"}, None),
        (FORGEJO, "synchronized", {}, "pushed"),
        (FORGEJO, "label_updated", {}, "labeled"),
        (FORGEJO, "edited", {"old_title": "WIP: Fix"}, "ready"),
        (FORGEJO, "edited", {"old_title": "WIP: Fix", "draft": True}, None),
        (FORGEJO, "edited", {"old_title": "Fix"}, None),
        (GITLAB, "open", {}, "opened"),
        (GITLAB, "update", {"oldrev": SHA}, "pushed"),
        (GITLAB, "update", {"changes": ready}, "ready"),
        (GITLAB, "update", {"changes": draft, "draft": True}, None),
        (GITLAB, "update", {"changes": {"labels": {}}}, "labeled"),
        (GITLAB, "update", {"changes": {"title": {}}}, None),
        (GITLAB, "update", {"oldrev": SHA, "state": "merged"}, None),
        (GITLAB, "merge", {"state": "merged"}, "closed"),
    ):
        found = event(host, action, **given)
        assert (found.kind if found else None) == kind, (host[0], action, given)


@pytest.mark.parametrize("host", [GITHUB, GITLAB, FORGEJO], ids=["github", "gitlab", "forgejo"])
def test_every_field_of_a_pull_request_is_read(host: Any) -> None:
    """The head is known, even for a deleted fork; times order deliveries that arrive out of order."""
    opened = "open" if host is GITLAB else "opened"
    bot_name = {"github": "x[bot]", "gitlab": "project_41_bot_ab12", "forgejo": "forgejo-actions"}[host[0]]
    found = present(event(host, opened, number=12, labels=["ai", "x"], draft=True, base="release/2", at=61))
    first = present(event(host, opened))
    bot = event(host, opened, sender=bot_name)

    assert (found.number, found.head, found.head_sha, found.base) == (12, "fix/login", SHA, "release/2")
    assert found.ref == ("refs/merge-requests/12/head" if host is GITLAB else "refs/pull/12/head")
    assert (found.labels, found.is_draft, found.sender, found.default_branch) == (("ai", "x"), True, "dora", "main")
    assert found.changed_at - first.changed_at == 61_000_000
    assert (first.is_fork, first.is_bot, bot is not None and bot.is_bot) == (False, False, True)
    forks = [event(host, opened, fork=kind) for kind in ("yes", "deleted")]
    assert [one is not None and one.is_fork for one in forks] == [True, True]


def test_an_unusable_delivery_is_refused() -> None:
    """The error names the field or the alternative; a tenant with its own secret may sign anything."""
    for host, action in ((GITHUB, "opened"), (GITLAB, "open")):
        for body in (b"", b"payload=%7B%7D", b"[]", b'{"action": "opened"}', b"[" * 100_000, b"\xff"):
            with pytest.raises(PayloadError):
                event_of(host[0], host[1], body)
        for key in ("head", "base", "sender", "path", "labels"):
            for value in ("a\0b", "\ud800", "x" * 1001):
                with pytest.raises(PayloadError):
                    event(host, action, **{key: [value] if key == "labels" else value})
    # Only a commit id may reach git.
    for sha in ("HEAD", "--upload-pack=x", SHA[:-1], f"{SHA}\n"):
        with pytest.raises(PayloadError, match="sha"):
            event_of(*GITHUB[:2], json.dumps(github("opened", sha)).encode())


def test_only_a_valid_signature_proves_the_secret() -> None:
    """With several secrets, the matching one is named; SHA-1 proves nothing."""
    raw, headers = signed(github("opened", SHA), "d-1")
    small = {name.lower(): value for name, value in headers.items()}
    secrets = {"A": "another", "B": SECRET, "C": SECRET}
    old = {name: value for name, value in small.items() if not name.endswith("256")}
    token = {"x-gitlab-token": SECRET}

    assert authentic("github", small, raw, secrets) == {"B", "C"}
    assert authentic("github", small, raw + b" ", secrets) == set()
    assert authentic("github", old, raw, secrets) == set()
    assert authentic("forgejo", small, raw, secrets) == {"B", "C"}
    assert authentic("forgejo", small | {"x-gitlab-token": SECRET}, raw + b" ", secrets) == set()
    assert authentic("gitlab", token, raw, secrets) == {"B", "C"}
    for headers in ({"x-gitlab-token": "\u00e9"}, {}):
        assert authentic("gitlab", headers, raw, secrets) == set()


def test_a_delivery_has_one_id() -> None:
    """The name is the code host's id, if there is one; for related events, the body distinguishes them."""
    again = {"idempotency-key": "key-of-delivery", "x-gitlab-event-uuid": "u"}

    assert delivery_id("github", {"x-github-delivery": "72d3162e-cc78"}, b"1") == "72d3162e-cc78"
    assert delivery_id("gitlab", again, b"1") == "key-of-delivery"
    assert len({delivery_id("gitlab", {"x-gitlab-event-uuid": "u"}, body) for body in (b"1", b"2", b"1")}) == 2
    assert delivery_id("github", {"x-github-delivery": "x" * 5000}, b"1") == delivery_id("github", {}, b"1")


def test_a_rule_matches_only_its_own_events() -> None:
    """A delivery that does not match gets the reason."""
    for rule, given, reason in (
        ({"on": ["labeled"]}, {}, "not on pushed"),
        ({"branches": ["main", "release/*"]}, {"base": "release/2"}, None),
        ({"branches": ["release/*"]}, {}, "not for the branch main"),
        ({"labels": ["ai"]}, {"labels": ["x"]}, "without its label"),
        ({}, {"draft": True}, "a draft"),
        ({}, {"sender_type": "Bot"}, "done by a bot"),
        ({}, {"fork": "yes"}, "the head is in a fork"),
        ({"forks": "approve"}, {"fork": "deleted"}, None),
        ({"forks": "without_secrets"}, {"fork": "yes"}, None),
    ):
        found = present(event(GITHUB, "synchronize", **given))
        made = TriggerRule.model_validate({"agent": "a", "instructions": "Review it.", **rule})
        assert made.mismatch(found) == reason, (rule, given)


HOUR: Final = DAY_MICROS // 24


def hourly(**given: Any) -> TriggerRule:
    """A rule that is due each hour."""
    more = {"on": ("schedule",), "schedule": "0 * * * *", "timezone": "Europe/Berlin"}
    return TriggerRule(**{"agent": "reviewer", "instructions": "Look around."} | more | given)


def scheduled(database: Database, *rules: TriggerRule, at: int = NOW) -> str:
    """Configure one repository with these rules, at a time; return the organization's id."""
    owner = organization(database)
    with database.write() as connection:
        made = Repository("api", "github", "acme/api", "https://h/acme/api.git", triggers=rules)
        repositories.save(connection, owner, made, at)
    return owner


def fire(database: Database, now: int, active_runs: int = 9, **settings: Any) -> list[tuple[str, str]]:
    """Do a worker's round at a time; return each decision."""
    given = Settings(limits=Limits(active_runs=active_runs), triggers=TriggerSettings(**settings))
    with database.read() as connection:
        before = {one.id for one in deliveries.latest(connection, 100)}
        due = due_jobs(connection, "schedule", now)
    for key in due:
        start_due(database, given, lambda: now, key)
    with database.read() as connection:
        return sorted((one.result, one.detail) for one in deliveries.latest(connection, 100) if one.id not in before)


@BOTH
def test_each_time_of_a_schedule_starts_one_run(database: Database) -> None:
    """Simultaneous workers start one run, even if the rule is configured again at that moment."""
    owner = scheduled(database, FIRST, hourly())
    with database.read() as connection:
        (key,) = due_jobs(connection, "schedule", NOW + HOUR)

    def race(number: int) -> None:
        if number % 4:
            start_due(database, Settings(), lambda: NOW + HOUR, key)
        else:
            scheduled(database, hourly(), FIRST)

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(race, range(12)))
    fire(database, NOW + HOUR)
    with database.read() as connection:
        (entry,) = deliveries.latest(connection, 100)
        (run,) = runs.page(connection, runs.Filters(owner), None, 9)
        (turn,) = turns.of(connection, run.id)
        (trail,) = audit.latest(connection, 9, action="trigger")
        (next_up,) = repositories.all_schedules(connection, owner)

    assert (entry.result, entry.run_id, entry.cause) == ("started", run.id, rfc3339(NOW + HOUR))
    assert (turn.caller, turn.instructions, run.agent) == ("schedule 0 * * * *", "Look around.", "reviewer")
    assert run.branch.startswith("agent/look-around-")
    assert (trail.target, trail.actor[:16]) == (run.id, "schedule:github:")
    assert next_up.next_times == [NOW + hours * HOUR for hours in (2, 3, 4)]


def test_the_newest_missed_time_starts_a_run(database: Database) -> None:
    """`catch_up` decides, and missed times are recorded; an edited rule makes up for nothing."""
    rules = hourly(catch_up="2h"), hourly(schedule="0 12 * * *", catch_up="2h")
    owner = scheduled(database, *rules)
    decided = [fire(database, NOW + at) for at in (HOUR - 1, HOUR, HOUR + 1, 12 * HOUR, 12 * HOUR + 1)]
    with database.read() as connection:
        last = deliveries.latest_scheduled(connection, owner)
    scheduled(database, hourly(catch_up="3h"), at=NOW + 40 * HOUR)
    edited = fire(database, NOW + 40 * HOUR + 1)

    since = f"for the newest of the times missed since {rfc3339(NOW + 2 * HOUR)}"
    late = "its start was more than 2h late (catch_up)"
    assert decided == [[], [("started", "")], [], [("missed", late), ("started", since)], []]
    assert [last["github:acme/api", at].cause for at in (0, 1)] == [rfc3339(NOW + at * HOUR) for at in (12, 3)]
    assert edited == []


def test_a_time_that_starts_nothing_is_recorded(database: Database) -> None:
    """The reason is no agent, too many runs, or an inactive organization; each time is decided, and the next is due."""
    owner = scheduled(database, hourly(), hourly(agent="gone"))
    decided = [fire(database, NOW + HOUR)]
    decided.append(fire(database, NOW + 2 * HOUR, active_runs=1))
    with database.write() as connection:
        organizations.change(connection, owner, active=False, entitlements=())
    decided.append(fire(database, NOW + 3 * HOUR))

    gone, full = "the agent gone is not configured", "the organization has 1 run queued or working"
    assert decided[:2] == [[("refused", gone), ("started", "")], [("refused", gone), ("refused", full)]]
    assert decided[2] == [("refused", gone), ("refused", "the organization is not active")]
