"""What a supervisor of processes may rely on: ready means ready, and SIGTERM drains."""

import contextlib
import select
import signal
import socket
import sqlite3
from pathlib import Path

import pytest

from tests.service.deployment import deployment
from tests.service_process import command as administer
from tests.service_process import refused_start


@pytest.mark.parametrize("command", [("serve", "--port", "0"), ("worker",)])
def test_systemd_is_told_when_a_process_is_ready(command: tuple[str, ...], tmp_path: Path) -> None:
    """Once, when what is accepted is executed as well; then SIGTERM ends the process in order."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, deployment(tmp_path / "service") as deployed:
        systemd.bind(str(tmp_path / "notify"))
        deployed.environment["NOTIFY_SOCKET"] = str(tmp_path / "notify")
        node = deployed.begin(*command)

        assert systemd.recv(100) == b"READY=1"
        assert deployed.admin("status")["workers"] != []
        node.signal(signal.SIGTERM)
        assert node.ended() == 0
        assert "drained" in node.log
        assert select.select([systemd], [], [], 0)[0] == []


def test_a_process_that_cannot_execute_is_never_ready(tmp_path: Path) -> None:
    """No ready line of a service whose queue does not work: it ends with its log, and a status that says so."""
    administer(tmp_path, "migrate")
    with contextlib.closing(sqlite3.connect(tmp_path / "service.sqlite")) as connection:
        connection.execute("DROP TABLE workflow_status")
    done = refused_start(tmp_path, "serve", "--port", "0")

    assert (done.returncode != 0, done.stdout) == (True, "")
    assert "workflow_status" in done.stderr
