from collections.abc import AsyncIterator

import pytest

from app.api.client import Client
from app.config.token import Token
from tests.lab import Server


@pytest.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    """A client of that server, with a deadline that no answer needs."""
    async with Client(server.base_url, Token("token-for-tests"), deadline_s=60.0) as client:
        yield client
