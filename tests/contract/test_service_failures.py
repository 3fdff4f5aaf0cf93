"""The client against the real service, over its socket: each failure it can be brought to."""

from pathlib import Path

import pytest

from app.api.client import Client
from app.api.errors import (
    ApiError,
    ForbiddenError,
    NotAuthorizedError,
    NotFoundError,
    RateLimitedError,
    RefusedError,
    RejectedError,
    ServerFailedError,
)
from app.api.requests import ContinueRun, CreateOrganization, OnboardProject, StartAgent, StartRun
from app.token import Token
from storage.records import Repository
from tests.contract.world import ADMIN, API, PLAIN, World, eventually, listed, nothing, refused, started
from tests.service_process import start_service


@pytest.mark.parametrize(
    ("who", "kind", "code"),
    [
        ("nobody", NotAuthorizedError, "invalid_token"),
        ("closed", ForbiddenError, "organization_inactive"),
        ("gone", NotFoundError, "organization_not_found"),
        ("plain", ForbiddenError, "missing_entitlement"),
    ],
)
async def test_an_organization_is_not_created_for_just_anyone(
    world: World, who: str, kind: type[RefusedError], code: str
) -> None:
    """Spec 7.1: 401, 403 and 404."""
    async with world.client(who) as client:
        error = await refused(client.send(CreateOrganization("a@example.com"), before_first_byte=nothing))

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
        error = await refused(client.send(request_, before_first_byte=nothing))

    assert (type(error), error.status, error.error_code) == (RejectedError, 400, code)


async def test_provisioning_that_fails_half_way_is_in_doubt(world: World) -> None:
    """Spec 7.1: after a 500 the organization may exist."""
    outbox, aside = world.service.outbox, world.service.outbox.with_name("aside")
    outbox.rename(aside)
    try:
        async with world.client() as client:
            error = await refused(client.send(CreateOrganization("a@example.com"), before_first_byte=nothing))
    finally:
        aside.rename(outbox)

    assert (type(error), error.error_code) == (ServerFailedError, "provisioning_failed")
    assert error.may_have_been_executed


@pytest.mark.parametrize(
    ("who", "kind"), [("nobody", NotAuthorizedError), ("creator", ForbiddenError), ("closed", ForbiddenError)]
)
async def test_the_runs_endpoints_need_an_administrator(world: World, who: str, kind: type[RefusedError]) -> None:
    """Spec 5.6: for the list, for a run, for an agent and for a project."""
    async with world.client(who) as client:
        errors = [
            await refused(client.list_runs()),
            await refused(client.send(StartRun("x", API), before_first_byte=nothing)),
            await refused(client.send(StartAgent("scribe", "acme/api"), before_first_byte=nothing)),
            await refused(client.send(OnboardProject("acme/tools"), before_first_byte=nothing)),
        ]

    assert {type(error) for error in errors} == {kind}


@pytest.mark.parametrize(
    ("query", "code"), [({"page_size": 101}, "invalid_page_size"), ({"page_token": "made-up"}, "invalid_page_token")]
)
async def test_a_list_that_cannot_be_given_is_rejected(world: World, query: dict[str, int], code: str) -> None:
    """Spec 4.2 and 8."""
    async with world.client() as client:
        error = await refused(client.list_runs(**query))  # type: ignore[arg-type]

    assert (type(error), error.error_code) == (RejectedError, code)


@pytest.mark.parametrize(
    ("request_", "kind", "code"),
    [
        (StartRun("", API), RejectedError, "invalid_request"),
        (StartRun("x", API, "no..branch"), RejectedError, "invalid_branch"),
        (StartRun("x", Repository.of("sourcehut", {})), RejectedError, "invalid_repository"),
        (ContinueRun("run_none", "x", API), NotFoundError, "run_not_found"),
    ],
)
async def test_a_run_that_cannot_be_is_refused(
    world: World, request_: StartRun | ContinueRun, kind: type[RefusedError], code: str
) -> None:
    """Spec 4.3: nothing is started, and the message says why."""
    async with world.client() as client:
        if isinstance(request_, StartRun):
            error = await refused(client.send(request_, before_first_byte=nothing))
        else:
            error = await refused(client.send(request_, before_first_byte=nothing))

    assert (type(error), error.error_code) == (kind, code)
    assert error.message


async def test_a_run_at_work_and_another_repository_refuse_to_be_continued(world: World, tmp_path: Path) -> None:
    """A second turn waits for the first one's end, and stays where it is."""
    async with world.client() as client:
        run = await started(client, f"wait {tmp_path / 'go'}")
        busy = await refused(client.send(ContinueRun(run.run_id, "x", API), before_first_byte=nothing))
        (tmp_path / "go").touch()
        await listed(client, run.run_id, "completed")
        elsewhere = ContinueRun(run.run_id, "x", Repository.parse("acme/web"))
        moved = await refused(client.send(elsewhere, before_first_byte=nothing))

    assert (type(busy), busy.status, busy.error_code) == (RejectedError, 409, "run_active")
    assert (moved.status, moved.error_code) == (400, "repository_mismatch")


async def test_an_agent_nobody_knows_is_not_found(world: World) -> None:
    """Spec 4.4; the name is one segment, whatever it holds."""
    async with world.client() as client:
        for name in ("no such agent", "../runs"):
            error = await refused(client.send(StartAgent(name, "acme/api"), before_first_byte=nothing))
            assert type(error) is NotFoundError


async def test_a_project_without_a_name_is_rejected(world: World) -> None:
    """Spec 4.6, by the design's decision."""
    async with world.client() as client:
        error = await refused(client.send(OnboardProject(), before_first_byte=nothing))

    assert (type(error), error.error_code) == (RejectedError, "invalid_request")


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


async def _limited(client: Client) -> RateLimitedError | None:
    try:
        await client.list_runs()
    except RateLimitedError as error:
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
                await client.send(CreateOrganization("a@example.com"), before_first_byte=nothing)
            service.restart()
            page = await client.list_runs()
    finally:
        service.stop()

    assert caught.value.surely_not_sent
    assert page.runs == ()
