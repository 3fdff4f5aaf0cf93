"""The codes of the contract, each from a process of its own."""

from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.fault_server import Drop, FaultServer, Hang, Respond
from tests.run_board import Board


@pytest.fixture
def process(tmp_path: Path, faults: FaultServer) -> CommandLine:
    return CommandLine(tmp_path, faults.base_url)


def test_0_and_7(process: CommandLine, faults: FaultServer) -> None:
    """Done, and not found."""
    empty = Respond(200, {"runs": [], "page_size": 100, "next_token": None, "total_count": 0})
    faults.script(empty, empty)

    assert process("runs", "list").code == 0
    assert process("runs", "show", "run_1").code == 7


@pytest.mark.parametrize(("status", "code"), [("failed", 1), ("working", 3)])
def test_1_and_3(tmp_path: Path, board: Board, status: str, code: int) -> None:
    """The run waited for failed, or went on for too long."""
    board.put("run_1", status, created=0)

    assert CommandLine(tmp_path, board.base_url)("runs", "wait", "run_1", "--timeout", "0.2s").code == code


@pytest.mark.parametrize(
    ("status", "code"), [(400, 2), (401, 4), (403, 4), (404, 7), (429, 5), (500, 8), (503, 8), (302, 8)]
)
def test_a_failed_reading_tells_what_failed(process: CommandLine, faults: FaultServer, status: int, code: int) -> None:
    """By the service's answer."""
    faults.script(Respond(status, {"message": "so it is"}, {"Location": "/v1/elsewhere"}))

    result = process("runs", "list", "--json")

    assert result.code == code
    assert result.json()["error"]["message"]


def test_6_once_and_again(process: CommandLine, faults: FaultServer) -> None:
    """The connection is dropped after the request was read: unknown, and blocked from then on; one POST in all."""
    faults.script(Drop())

    first = process("orgs", "create", "a@example.com", "--json")
    second = process("orgs", "create", "a@example.com", "--json")

    assert (first.code, first.json()["state"]) == (6, "unknown")
    assert (second.code, second.json()["error"]["kind"]) == (6, "blocked")
    assert [request.method for request in faults.requests] == ["POST"]


def test_8_when_the_answer_takes_too_long(process: CommandLine, faults: FaultServer) -> None:
    """The deadline is the configuration's."""
    faults.script(Hang())
    file = process.home / "config.toml"
    file.write_text("[poll]\ndeadline_s = 0.5\n")

    result = process("--config", str(file), "runs", "list", "--json")

    assert (result.code, result.json()["error"]["kind"]) == (8, "timed_out")
