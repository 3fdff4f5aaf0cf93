"""The client against the real service, over its socket."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from app.api.client import Client
from app.api.errors import ForbiddenError, NotAuthorizedError, NotFoundError, RefusedError, ServerFailedError
from app.config.token import Token
from storage.records import Repository
from tests.contract.attempts import create
from tests.service_process import RunningService, demo_setup, start_service

API = Repository.parse("acme/api")
PLAIN = {"name": "Plain", "slug": "plain", "entitlements": ["ServiceAPI"]}
ADMIN = [{"alias": "tests", "scopes": ["admin"]}]


@dataclass(frozen=True)
class World:
    """A service with organizations of every kind, and a client for each."""

    service: RunningService
    tokens: dict[str, str]
    """By organization's slug; one is unknown."""

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
    # No command takes an organization away; the spec's 404 is about one that is gone.
    with closing(sqlite3.connect(service.data_dir / "service.sqlite", timeout=60)) as connection, connection:
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
