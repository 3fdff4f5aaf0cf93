"""The client against the real service, over its socket."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.api.client import Client
from app.api.errors import ForbiddenError, NotAuthorizedError, NotFoundError, RefusedError, ServerFailedError
from app.api.requests import StartAgent
from app.token import Token
from storage.records import Repository, Run
from tests.contract.attempts import create, nothing
from tests.service_process import RunningService, demo_setup, start_service

API = Repository.parse("acme/api")
PLAIN = {"name": "Plain", "slug": "plain", "entitlements": ["ServiceAPI"]}
ADMIN = [{"alias": "tests", "scopes": ["admin"]}]


@dataclass(frozen=True)
class World:
    """A service with organizations of every kind, and a client for each."""

    service: RunningService
    tokens: dict[str, str]
    """By organization's slug; `nobody` is unknown."""

    def client(self, who: str = "acme") -> Client:
        """A client with that organization's token; use it as a context."""
        return Client(self.service.base_url, Token(self.tokens[who]))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("service")
    setup = demo_setup(folder)
    setup["organizations"] += [
        {**PLAIN, "name": name, "slug": name, "tokens": ADMIN} for name in ("plain", "closed", "gone")
    ]
    service = start_service(folder, setup=setup, settings='[execution]\nsandbox = "none"\n')
    tokens = {one["slug"]: one["tokens"][0]["value"] for one in service.setup["organizations"]}
    service.admin("org", "deactivate", "closed")
    # No command takes an organization away; the spec's 404 is about one that somebody did.
    with closing(sqlite3.connect(service.data_dir / "service.sqlite", timeout=10)) as connection, connection:
        connection.execute("DELETE FROM organizations WHERE slug = 'gone'")
    yield World(service, tokens | {"nobody": "no-such-token"})
    service.stop()


async def test_health_names_the_connected_hosts(world: World) -> None:
    """Spec 4.5 and 2.7."""
    async with world.client() as client:
        report = await client.health()

    found = {sample.platform: sample for sample in report.samples}
    assert {name: sample.status for name, sample in found.items()} == {"github": "ok", "gitlab": "ok"}
    assert (found["gitlab"].host, found["gitlab"].group) == ("gitlab.example", "acme")


async def test_the_list_pages_and_filters(world: World) -> None:
    """Spec 4.2: newest first, page by page, without a run lost or repeated; both ends of a window are inclusive."""
    async with world.client() as client:
        ids = [
            (await client.send(StartAgent("scribe", "acme/api"), before_first_byte=nothing)).result_id for _ in range(3)
        ]
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
        error = await create(client)

    assert (type(error), error.error_code) == (kind, code)
    assert not error.may_have_been_executed


async def test_provisioning_that_fails_half_way_is_in_doubt(world: World) -> None:
    """Spec 7.1: after a 500 the organization may exist."""
    outbox, aside = world.service.outbox, world.service.outbox.with_name("aside")
    outbox.rename(aside)
    try:
        async with world.client() as client:
            error = await create(client)
    finally:
        aside.rename(outbox)

    assert (type(error), error.error_code) == (ServerFailedError, "provisioning_failed")
    assert error.may_have_been_executed


async def test_a_service_that_was_stopped_was_not_asked(tmp_path: Path) -> None:
    """Afterwards nothing is in doubt; back again, it answers the same client."""
    service = start_service(tmp_path, setup={"organizations": [{**PLAIN, "tokens": ADMIN}]})
    try:
        async with Client(service.base_url, Token(service.admin_token)) as client:
            await client.list_runs()
            service.kill()
            error = await create(client)
            service.restart()
            page = await client.list_runs()
    finally:
        service.stop()

    assert error.surely_not_sent
    assert page.runs == ()
