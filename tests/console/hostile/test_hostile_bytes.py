"""Whatever a service says, in whichever field: a real terminal is sent printable text, and sequences that are ours."""

from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.console.hostile.conftest import TOKEN, foreign, shapes
from tests.console.hostile.payloads import SEQUENCES, texts
from tests.console.scenes import a_day
from tests.pty.terminal import Terminal
from tests.run_board import Board, served, stamp

Terminals = Callable[..., Terminal]
ESCAPE, PAGE_DOWN = "\x1b", "\x1b[6~"
ROOMS = ("2", "3", "4", "6", "1")
ROWS = ("v", *"jjjjjjjjj", "\r", "v", PAGE_DOWN, ESCAPE, "f", "F", ESCAPE, " ")
"""Each run beside the list, one of them alone, its JSON; followed, and marked."""
SHEETS = tuple(key for sheet in ("s", "R", "B", "t", "V", "C", "o", "n", "a", "N", "c", "E") for key in (sheet, ESCAPE))
"""Whatever is chosen from, and the forms that begin with the run under the cursor."""
OVER_ALL = ("?", "q", ":", ESCAPE, ESCAPE, ESCAPE)


def hostile_board(board: Board, payloads: list[str]) -> None:
    """Puts each payload into every field that the service fills in."""
    for number, payload in enumerate(payloads):
        board.put(
            f"run_{number:03}{payload[:900]}",
            ["completed", "working", payload][number % 3],
            created=number,
            updated=number + 2.0,
            branch_name=payload,
            repository={"platform": [payload, "github"][number % 2], "data": {"owner": payload, "repo": f"r{payload}"}},
            extra={payload: payload},
        )
    board.put("run_zzz_marker", "failed", created=599.0, branch_name="the-marker")
    board.health = {
        "github": {"status": payloads[0]},
        "gitlab": {"status": "degraded", "host": payloads[-1], "group": payloads[0]},
        **{payload[:200]: {"status": payload} for payload in payloads},
    }


def visit(terminal: Terminal) -> None:
    """Into every room, every run of the first page, every sheet and form, the palette and the help."""
    for key in (*ROOMS, *ROWS, *SHEETS, *OVER_ALL):
        _press(terminal, key)
    assert terminal.process.poll() is None, terminal.seen[-2000:]


def _press(terminal: Terminal, key: str) -> None:
    # A question about the cursor's place is answered by no terminal here: what a key paints ends in silence.
    terminal.type(key)
    while terminal._read(0.15):
        pass


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The shapes of what a console sends that nobody troubles."""
    folder = tmp_path_factory.mktemp("calm")
    with served(Board()) as board:
        a_day(board)
        env = {
            "HOME": str(folder),
            "RUNWARDEN_DATA_DIR": str(folder),
            "RUNWARDEN_BASE_URL": board.base_url,
            "RUNWARDEN_TOKEN": TOKEN,
            "TZ": "UTC",
        }
        terminal = Terminal(["-m", "app"], env)
        terminal.shows("complete")
        visit(terminal)
        terminal.type("q")
        terminal.end()
        terminal.close()
    return shapes(terminal.seen)


def assert_clean(terminal: Terminal, calm: set[str]) -> None:
    assert foreign(terminal.seen, calm) == []
    for sequence in (b"owned", b"\x1b[5;77;1m"):
        assert b"\x1b]" + sequence not in terminal.seen
    assert b"\x1b[5;77;1m" not in terminal.seen


def test_the_worst_known_text_in_every_field(terminals: Terminals, calm: set[str]) -> None:
    """Thirty payloads, each in the run's id, status, branch, repository and platform, and in health."""
    with served(Board()) as board:
        hostile_board(board, list(SEQUENCES))
        terminal = terminals(board.base_url)
        terminal.shows("the-marker")
        visit(terminal)
        # What is followed ends, and is told: a toast, the strip, the window's title.
        for run in board.runs.values():
            run.update(status="failed", updated_at=stamp(700.0))
        board.health = {"github": {"status": SEQUENCES[0], "host": "".join(SEQUENCES[:6])}}
        for key in ("r", "2", "6", "1"):
            _press(terminal, key)

    assert_clean(terminal, calm)


@settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    # A failing example starts a program for each attempt to make it smaller: minutes for what the pieces show anyway.
    phases=[Phase.explicit, Phase.generate],
)
@given(payloads=st.lists(texts, min_size=24, max_size=24))
def test_any_text_in_every_field(terminals: Terminals, calm: set[str], payloads: list[str]) -> None:
    """Found by chance, or not at all."""
    with served(Board()) as board, TemporaryDirectory() as folder:
        hostile_board(board, payloads)
        terminal = terminals(board.base_url, folder=folder)
        terminal.shows("the-marker")
        visit(terminal)
        terminal.close()

    assert_clean(terminal, calm)


def test_an_error_message_is_no_way_in_either(terminals: Terminals, calm: set[str]) -> None:
    """The service refuses, and says so with sequences; the banner and the card show them as text."""
    body: dict[str, Any] = {"message": "".join(SEQUENCES[:12]) + "refused-by-the-service", "error_code": SEQUENCES[0]}
    with served(RefusingBoard(body)) as board:
        terminal = terminals(board.base_url)
        terminal.shows("403")
        visit(terminal)

    assert_clean(terminal, calm)


class RefusingBoard(Board):
    """Answers each list request with a 403 and a body."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.body = body

    def answer(self, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        return 403, self.body
