"""Settings for all tests, and the servers that many of them use."""

import gc
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from storage import database
from tests.lab import Lab, Server

_HERE: Final = Path(__file__).parent

# By default Hypothesis fails an example that takes over 200 ms, which happens on a busy machine.
settings.register_profile("any machine", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


# Nothing that was imported and collected becomes garbage before the first test.
gc.disable()


def pytest_configure() -> None:
    """Use UTC, since tests write times in it; tests of time zones set their own.

    Restore the signals' defaults: under nohup or in the background, ignored signals are inherited. Do not sync files:
    no test cuts the power, and syncing took half of a command's time.
    """
    database.DURABLE["synchronous"] = "OFF"
    os.environ["TZ"] = "UTC"
    time.tzset()
    # Tests may run within tmux or GNU screen, which the console checks.
    for variable in ("TMUX", "STY"):
        os.environ.pop(variable, None)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def pytest_collection(session: pytest.Session) -> None:
    """Let each worker import its own share first, so that on a fresh clone one worker compiles what all import."""
    worker = getattr(session.config, "workerinput", {"workerid": "gw0", "workercount": 1})
    files = [file for folder in session.config.args for file in sorted(Path(folder).rglob("test_*.py"))]
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for file in files[first:]:
        # The error is reported where the file is collected.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(file.resolve().relative_to(session.config.rootpath).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread each folder's files evenly over the run, since the console computes and the service waits for processes.

    In the folders' order, all workers would compute for half of the time and wait for the other half.
    """
    folders: dict[str, list[Path]] = {}
    for file in dict.fromkeys(item.path for item in items):
        folders.setdefault(file.relative_to(_HERE).parts[0], []).append(file)
    place = {file: (number + 0.5) / len(files) for files in folders.values() for number, file in enumerate(files)}
    items.sort(key=lambda item: place[item.path])


def pytest_collection_finish() -> None:
    """Collect garbage rarely, and never scan what was imported, which took a seventh of the processor's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


PACKAGES: Final = {
    "bubblewrap": "bubblewrap",
    "no sandbox": "bubblewrap",
    "slirp4netns": "slirp4netns",
    "PostgreSQL": "postgresql",
    "PgBouncer": "pgbouncer",
    "caddy": "caddy",
    "Prometheus": "prometheus",
    "systemd-analyze": "systemd",
    "oidc-provider": "npm",
    "Node": "nodejs",
    "git-http-backend": "git",
    "git-daemon": "git",
    "chromium": "chromium-driver",
}
"""The Debian package that a skipped test needs, by a word of its reason."""


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print how many tests were skipped, and the one command after which most of them run."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    reasons = [str(report.longrepr[2]) for report in reporter.stats.get("skipped", []) if report.longrepr]
    wanted = dict.fromkeys(PACKAGES.values(), 0)
    for reason in reasons:
        if package := next((package for word, package in PACKAGES.items() if word in reason), None):
            wanted[package] += 1
    count = sum(wanted.values())
    if count:
        names = " ".join(package for package, tests in wanted.items() if tests)
        reporter.write_line(
            f"{count} skipped tests need other programs; on Debian: sudo apt install {names}", yellow=True
        )
    linters = sum("make .venv/.containers" in reason for reason in reasons)
    if linters:
        reporter.write_line(f"{linters} skipped tests need other linters: make .venv/.containers", yellow=True)
    if rest := len(reasons) - count - linters:
        reporter.write_line(f"{rest} tests were skipped because they do not apply here; the reasons are above.")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two more than there are processors, because a third of a test's time is spent waiting for another process.

    At most one for each GiB of memory but the first, since some tests' processes take more than one. None for one file:
    workers would take longer to start than most files take.
    """
    memory = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    # A container may have less memory than its machine.
    for file in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            memory.append(int(Path("/sys/fs/cgroup", file).read_text()))
    memory_gib = min(memory) >> 30
    is_one_file = len(config.args) == 1 and Path(config.args[0].partition("::")[0]).is_file()
    return 0 if is_one_file else max(1, min((os.cpu_count() or 1) + 2, memory_gib - 1))


@pytest.fixture
def server() -> Iterator[Server]:
    """A server over a real socket that answers and misbehaves as scripted."""
    with Server() as server:
        yield server


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A service over a real socket whose runs the test controls."""
    with Lab() as lab:
        yield lab


@pytest.fixture
def board(lab: Lab) -> Lab:
    """That service with a day's runs."""
    from tests.console.scenes import a_day

    a_day(lab)
    return lab
