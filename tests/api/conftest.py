from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from app.api.client import Client
from app.api.errors import ApiError
from app.api.requests import CreateOrganization
from app.profiles.token import Token
from tests.lab import Server

ORGANIZATION = CreateOrganization("ada@example.com")


async def nothing() -> None:
    """A commit that does nothing."""


async def create(client: Client) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await client.send(ORGANIZATION, before_first_byte=nothing)
    return caught.value


async def read(client: Client) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await client.list_runs()
    return caught.value


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with aclosing(Client(server.base_url, Token("token-for-tests"), deadline_s=60.0)) as client:
        yield client
