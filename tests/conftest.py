"""What holds for all tests."""

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.fault_server import FaultServer
from tests.run_board import Board, served

# Hypothesis would fail what takes longer than 200 ms, which a busy machine decides.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_configure() -> None:
    """Take signals as a shell's foreground does: under nohup, and in the background, their disregard is inherited."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the console's files, which compute, evenly among the others, most of which wait for processes.

    In the folders' order, all workers would compute for half of the time and wait for the other half.
    """
    files = dict.fromkeys(item.path for item in items)
    computing = [file for file in files if "console" in file.parts]
    waiting = [file for file in files if "console" not in file.parts]
    place = {file: (number + 0.5) / len(kind) for kind in (computing, waiting) for number, file in enumerate(kind)}
    items.sort(key=lambda item: place[item.path])


def pytest_collection_finish() -> None:
    """Collect garbage seldom, and never look again at what was imported: it took a seventh of the processor."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: many tests wait for a service, a worker or a terminal."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture
def board() -> Iterator[Board]:
    """A service with a day's runs, over a real socket."""
    from tests.console.scenes import a_day

    with served(Board()) as board:
        a_day(board)
        yield board


@pytest.fixture
def server() -> Iterator[FaultServer]:
    """A server over a real socket that answers, and misbehaves, as scripted."""
    with FaultServer() as server:
        yield server
