"""Attempts against a server that fails them."""

import pytest

from app.api.client import Client
from app.api.errors import ApiError
from app.api.requests import CreateOrganization

ORGANIZATION = CreateOrganization("ada@example.com")


async def nothing() -> None:
    """Commit without more."""


async def create(client: Client) -> ApiError:
    """The error of one attempt to create an organization."""
    with pytest.raises(ApiError) as caught:
        await client.send(ORGANIZATION, before_first_byte=nothing)
    return caught.value


async def read(client: Client) -> ApiError:
    """The error of one look at the runs."""
    with pytest.raises(ApiError) as caught:
        await client.list_runs()
    return caught.value
