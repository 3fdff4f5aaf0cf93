"""A whole console, a whole service behind it, and the two hands that every journey is walked with."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from tests.console.conftest import WIDE, Staged
from tests.console.journeys.steps import Hand, Mouse, Service
from tests.console.scenes import a_day

Walked = Callable[..., AbstractAsyncContextManager[Hand]]


def _first(*hands: object) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("walked", hands, indirect=True, ids=lambda hand: hand.__name__.lower())


BY_KEYS = _first(Hand, pytest.param(Mouse, marks=pytest.mark.campaign))
"""What comes of the keys is the fact; the same by the mouse is left to the campaign."""
BY_MOUSE = _first(Mouse, pytest.param(Hand, marks=pytest.mark.campaign))
"""The other way round: a click leads there."""


@pytest.fixture
def service() -> Iterator[Service]:
    """A day's runs."""
    with Service() as service:
        a_day(service)
        yield service


@pytest.fixture
def board(service: Service) -> Service:
    """What `staged` shows."""
    return service


@pytest.fixture
def walked(request: pytest.FixtureRequest, staged: Staged) -> Walked:
    """Opens a console for one hand: without the mouse, or without a key except to type into a field."""

    @asynccontextmanager
    async def walk(size: tuple[int, int] = WIDE, **how: Any) -> AsyncIterator[Hand]:
        async with staged(size, **how) as scene:
            yield request.param(scene)

    return walk
