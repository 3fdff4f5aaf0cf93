"""The client against the real service, over its socket: each endpoint, and each failure it can be brought to."""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest

from app.api.client import Client
from app.api.errors import (
    ApiError,
    Forbidden,
    NotAuthorized,
    NotFound,
    RateLimited,
    Refused,
    Rejected,
    ServerFailed,
)
from app.api.requests import ContinueRun, CreateOrganization, OnboardProject, StartAgent, StartRun
from app.token import Token
from storage.records import Repository, Run
from tests.service_process import RunningService, demo_setup, start_service

API = Repository.parse("acme/api")
PLAIN = {"name": "Plain", "slug": "plain", "entitlements": ["ServiceAPI"]}
ADMIN = [{"alias": "tests", "scopes": ["admin"]}]
DEADLINE_S = 60.0
Fact = TypeVar("Fact")


async def nothing() -> None:
    """Commit without more."""


async def eventually(look: Callable[[], Awaitable[Fact | None]]) -> Fact:
    """The fact, as soon as a look finds it."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if (fact := await look()) is not None:
            return fact
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come to pass")


@dataclass(frozen=True)
class World:
    """A service with organizations of every kind, and a client for each."""

    service: RunningService
    tokens: dict[str, str]
    """By organization's slug; `creator` has scope organizations:create only, `nobody` is unknown."""

    def client(self, who: str = "acme") -> Client:
        """A client with that organization's token; use it as a context."""
        return Client(self.service.base_url, Token(self.tokens[who]))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One service for all tests of this file."""
    folder = tmp_path_factory.mktemp("service")
    setup = demo_setup(folder)
    setup["organizations"][0]["tokens"].append({"alias": "creator", "scopes": ["organizations:create"]})
    setup["organizations"] += [
        {**PLAIN, "name": name, "slug": name, "tokens": ADMIN} for name in ("plain", "closed", "gone")
    ]
    service = start_service(folder, setup=setup, settings='[execution]\nsandbox = "none"\n')
    try:
        made = {one["slug"]: one["tokens"] for one in service.setup["organizations"]}
        tokens = {slug: found[0]["value"] for slug, found in made.items()}
        tokens |= {"creator": made["acme"][1]["value"], "nobody": "no-such-token"}
        service.admin("org", "deactivate", "closed")
        _forget(service, "gone")
        yield World(service, tokens)
    finally:
        service.stop()


def _forget(service: RunningService, slug: str) -> None:
    # No command takes an organization away; the spec's 404 is about one that somebody did.
    with closing(sqlite3.connect(service.data_dir / "service.sqlite", timeout=10)) as connection, connection:
        connection.execute("DELETE FROM organizations WHERE slug = ?", (slug,))


async def refused(attempt: Awaitable[object]) -> Refused:
    """The failure of an attempt."""
    with pytest.raises(ApiError) as caught:
        await attempt
    assert isinstance(caught.value, Refused)
    return caught.value


async def started(client: Client, instructions: str) -> Run:
    """A run of the quick agent that was started and is listed."""
    request = StartAgent("scribe", "acme/api", inputs={"instructions": instructions})
    run_id = (await client.start_agent(request, before_first_byte=nothing)).result_id
    return await listed(client, run_id)


async def listed(client: Client, run_id: str, status: str | None = None) -> Run:
    """The run, as soon as the list shows it (in that status)."""

    async def look() -> Run | None:
        runs = (await client.list_runs()).runs
        return next((run for run in runs if run.run_id == run_id and status in {None, run.status}), None)

    return await eventually(look)


async def test_a_run_is_started_listed_and_continued(world: World) -> None:
    """Spec 4.2 and 4.3, from queued to completed and queued again, under the same id."""
    async with world.client() as client:
        first = await client.start_run(StartRun("Review the login", API, "fix/login"), before_first_byte=nothing)
        assert first.run is not None
        assert (first.status, first.run.status, first.run.branch_name) == (201, "queued", "fix/login")
        assert first.run.repository == API

        done = await listed(client, first.run.run_id, "completed")
        assert done.created_at is not None
        assert done.updated_at is not None
        assert done.created_at < done.updated_at

        again = await client.continue_run(ContinueRun(done.run_id, "Once more", API), before_first_byte=nothing)
        assert again.run is not None
        assert (again.run.run_id, again.run.status) == (done.run_id, "queued")


async def test_a_named_agent_is_accepted(world: World) -> None:
    """Spec 4.4: an execution with an id and a status."""
    async with world.client() as client:
        answer = await client.start_agent(StartAgent("scribe", "acme/web"), before_first_byte=nothing)

    execution = answer.execution
    assert execution is not None
    assert (execution.agent_name, execution.repository, execution.status) == ("scribe", "acme/web", "queued")
    assert execution.execution_id
    assert execution.created_at


async def test_an_organization_is_created_and_invited_twice_over(world: World) -> None:
    """Spec 4.1: each success is another organization, and each has its invitation."""
    async with world.client("creator") as client:
        both = [
            await client.create_organization(
                CreateOrganization("ada@example.com", "PARTNER"), before_first_byte=nothing
            )
            for _ in range(2)
        ]

    assert len({answer.result_id for answer in both}) == 2
    for answer in both:
        assert answer.organization is not None
        assert answer.organization.parent_organization_id == world.service.organization["id"]
        assert (world.service.outbox / f"{answer.result_id}.eml").exists()


async def test_health_names_the_connected_hosts(world: World) -> None:
    """Spec 4.5 and 2.7."""
    async with world.client() as client:
        report = await client.health()

    found = {sample.platform: sample for sample in report.samples}
    assert {name: sample.status for name, sample in found.items()} == {"github": "ok", "gitlab": "ok"}
    assert (found["gitlab"].host, found["gitlab"].group) == ("gitlab.example", "acme")


async def test_health_of_an_organization_without_hosts_is_empty(world: World) -> None:
    """No installation is a fact, and no failure."""
    async with world.client("plain") as client:
        assert (await client.health()).samples == ()


async def test_a_known_gitlab_project_is_connected_already(world: World) -> None:
    """Spec 4.6, by the design's decision; a project that cannot be found is an answer as well."""
    async with world.client() as client:
        known = (await client.onboard_project(OnboardProject("acme/tools"), before_first_byte=nothing)).project
        missing = (await client.onboard_project(OnboardProject("acme/nothing"), before_first_byte=nothing)).project

    assert known is not None
    assert missing is not None
    assert (known.success, known.status, known.project_path) == (True, "already_connected", "acme/tools")
    assert (missing.success, missing.status) == (False, "failed")
    assert missing.error


async def test_the_list_pages_and_filters(world: World) -> None:
    """Spec 4.2: newest first, page by page, without a run lost or repeated; both ends of a window are inclusive."""
    async with world.client() as client:
        ids = [(await started(client, f"note {number}")).run_id for number in range(3)]
        everything = (await client.list_runs()).runs
        walked: list[Run] = []
        token: str | None = None
        while True:
            page = await client.list_runs(page_size=2, page_token=token)
            walked += page.runs
            if (token := page.next_token) is None:
                break
        one = next(run for run in everything if run.run_id == ids[1])
        window = await client.list_runs(date_from=one.created_at, date_to=one.created_at)
        elsewhere = await client.list_runs(repository=Repository.parse("gitlab:acme/tools"))
        here = await client.list_runs(repository=API)
        odd = await client.list_runs(status="no-such-status")
        past = await client.list_runs(date_to=datetime.now(UTC) - timedelta(days=1))

    assert [run.run_id for run in everything][:3] == ids[::-1]
    assert [run.run_id for run in walked] == [run.run_id for run in everything]
    assert [run.run_id for run in window.runs] == [one.run_id]
    assert (elsewhere.runs, odd.runs, past.runs) == ((), (), ())
    assert set(ids) <= {run.run_id for run in here.runs}


@pytest.mark.parametrize(
    ("who", "kind", "code"),
    [
        ("nobody", NotAuthorized, "invalid_token"),
        ("closed", Forbidden, "organization_inactive"),
        ("gone", NotFound, "organization_not_found"),
        ("plain", Forbidden, "missing_entitlement"),
    ],
)
async def test_an_organization_is_not_created_for_just_anyone(
    world: World, who: str, kind: type[Refused], code: str
) -> None:
    """Spec 7.1: 401, 403 and 404."""
    async with world.client(who) as client:
        error = await refused(
            client.create_organization(CreateOrganization("a@example.com"), before_first_byte=nothing)
        )

    assert (type(error), error.error_code) == (kind, code)
    assert not error.may_have_been_executed


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (CreateOrganization("no address"), "invalid_email"),
        (CreateOrganization("a@example.com", "NOPE"), "invalid_offer_code"),
        (CreateOrganization("a@example.com", "PUBLIC"), "invalid_offer_code"),
    ],
)
async def test_a_wrong_organization_is_rejected(world: World, request_: CreateOrganization, code: str) -> None:
    """Spec 7.1: 400 for an email or an offer code that will not do."""
    async with world.client() as client:
        error = await refused(client.create_organization(request_, before_first_byte=nothing))

    assert (type(error), error.status, error.error_code) == (Rejected, 400, code)


async def test_provisioning_that_fails_half_way_is_in_doubt(world: World) -> None:
    """Spec 7.1: after a 500 the organization may exist."""
    outbox, aside = world.service.outbox, world.service.outbox.with_name("aside")
    outbox.rename(aside)
    try:
        async with world.client() as client:
            error = await refused(
                client.create_organization(CreateOrganization("a@example.com"), before_first_byte=nothing)
            )
    finally:
        aside.rename(outbox)

    assert (type(error), error.error_code) == (ServerFailed, "provisioning_failed")
    assert error.may_have_been_executed


@pytest.mark.parametrize(("who", "kind"), [("nobody", NotAuthorized), ("creator", Forbidden), ("closed", Forbidden)])
async def test_the_runs_endpoints_need_an_administrator(world: World, who: str, kind: type[Refused]) -> None:
    """Spec 5.6: for the list, for a run, for an agent and for a project."""
    async with world.client(who) as client:
        errors = [
            await refused(client.list_runs()),
            await refused(client.start_run(StartRun("x", API), before_first_byte=nothing)),
            await refused(client.start_agent(StartAgent("scribe", "acme/api"), before_first_byte=nothing)),
            await refused(client.onboard_project(OnboardProject("acme/tools"), before_first_byte=nothing)),
        ]

    assert {type(error) for error in errors} == {kind}


@pytest.mark.parametrize(
    ("query", "code"), [({"page_size": 101}, "invalid_page_size"), ({"page_token": "made-up"}, "invalid_page_token")]
)
async def test_a_list_that_cannot_be_given_is_rejected(world: World, query: dict[str, int], code: str) -> None:
    """Spec 4.2 and 8."""
    async with world.client() as client:
        error = await refused(client.list_runs(**query))  # type: ignore[arg-type]

    assert (type(error), error.error_code) == (Rejected, code)


@pytest.mark.parametrize(
    ("request_", "kind", "code"),
    [
        (StartRun("", API), Rejected, "invalid_request"),
        (StartRun("x", API, "no..branch"), Rejected, "invalid_branch"),
        (StartRun("x", Repository.of("sourcehut", {})), Rejected, "invalid_repository"),
        (ContinueRun("run_none", "x", API), NotFound, "run_not_found"),
    ],
)
async def test_a_run_that_cannot_be_is_refused(
    world: World, request_: StartRun | ContinueRun, kind: type[Refused], code: str
) -> None:
    """Spec 4.3: nothing is started, and the message says why."""
    async with world.client() as client:
        if isinstance(request_, StartRun):
            error = await refused(client.start_run(request_, before_first_byte=nothing))
        else:
            error = await refused(client.continue_run(request_, before_first_byte=nothing))

    assert (type(error), error.error_code) == (kind, code)
    assert error.message


async def test_a_run_at_work_and_another_repository_refuse_to_be_continued(world: World, tmp_path: Path) -> None:
    """A second turn waits for the first one's end, and stays where it is."""
    async with world.client() as client:
        run = await started(client, f"wait {tmp_path / 'go'}")
        busy = await refused(client.continue_run(ContinueRun(run.run_id, "x", API), before_first_byte=nothing))
        (tmp_path / "go").touch()
        await listed(client, run.run_id, "completed")
        elsewhere = ContinueRun(run.run_id, "x", Repository.parse("acme/web"))
        moved = await refused(client.continue_run(elsewhere, before_first_byte=nothing))

    assert (type(busy), busy.status, busy.error_code) == (Rejected, 409, "run_active")
    assert (moved.status, moved.error_code) == (400, "repository_mismatch")


async def test_an_agent_nobody_knows_is_not_found(world: World) -> None:
    """Spec 4.4; the name is one segment, whatever it holds."""
    async with world.client() as client:
        for name in ("no such agent", "../runs"):
            error = await refused(client.start_agent(StartAgent(name, "acme/api"), before_first_byte=nothing))
            assert type(error) is NotFound


async def test_a_project_without_a_name_is_rejected(world: World) -> None:
    """Spec 4.6, by the design's decision."""
    async with world.client() as client:
        error = await refused(client.onboard_project(OnboardProject(), before_first_byte=nothing))

    assert (type(error), error.error_code) == (Rejected, "invalid_request")


async def test_too_many_requests_are_told_how_long_to_wait(tmp_path: Path) -> None:
    """Spec 8: 429, and a wait in seconds."""
    setup = {"organizations": [{**PLAIN, "tokens": ADMIN}]}
    service = start_service(tmp_path, setup=setup, settings="[limits]\nrequests_per_minute = 1\n")
    try:
        async with Client(service.base_url, Token(service.admin_token)) as client:
            error = await eventually(lambda: _limited(client))
    finally:
        service.stop()

    assert error.retry_after_s is not None
    assert 0 < error.retry_after_s <= 120


async def _limited(client: Client) -> RateLimited | None:
    try:
        await client.list_runs()
    except RateLimited as error:
        return error
    return None


async def test_a_service_that_was_stopped_was_not_asked(tmp_path: Path) -> None:
    """Afterwards nothing is in doubt; back again, it answers the same client."""
    service = start_service(tmp_path, setup={"organizations": [{**PLAIN, "tokens": ADMIN}]})
    try:
        async with Client(service.base_url, Token(service.admin_token)) as client:
            await client.list_runs()
            service.kill()
            with pytest.raises(ApiError) as caught:
                await client.create_organization(CreateOrganization("a@example.com"), before_first_byte=nothing)
            service.restart()
            page = await client.list_runs()
    finally:
        service.stop()

    assert caught.value.surely_not_sent
    assert page.runs == ()
