"""Whatever a service says, in whichever field: a real terminal is sent printable text, and sequences that are ours."""

from collections.abc import Callable
from typing import Any

from tests.console.hostile.conftest import foreign
from tests.console.hostile.payloads import SEQUENCES
from tests.lab import Lab, Received, Respond, Step, stamp
from tests.pty.terminal import ESCAPE, Terminal

Terminals = Callable[..., Terminal]
PAGE_DOWN = "\x1b[6~"
F6 = "\x1b[17~"
TABS = ("2", "3", "4", "5", "6", "7", "1")
ROWS = (*"jjjjjjjjj", "\r", F6, PAGE_DOWN, ESCAPE, "f", "F", ESCAPE, " ")
"""Each run beside the list, one of them alone, its JSON; followed, and marked."""
SHEETS = tuple(key for sheet in ("s", "R", "B", "t", "V", "C", "o", "n", "a", "N", "c", "E") for key in (sheet, ESCAPE))
"""Whatever is chosen from, and the forms that begin with the run under the cursor."""
OVER_ALL = ("?", "q", ":", ESCAPE, ESCAPE, ESCAPE)


def hostile_board(board: Lab, payloads: list[str]) -> None:
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


def visit(terminal: Terminal, keys: tuple[str, ...] = (*TABS, *ROWS, *SHEETS, *OVER_ALL)) -> None:
    """Into every room, every run of the first page, every sheet and form, the palette and the help."""
    terminal.press(*keys)
    assert terminal.process.poll() is None, terminal.seen[-2000:]


def assert_clean(terminal: Terminal) -> None:
    assert foreign(terminal.seen) == []
    for sequence in (b"owned", b"\x1b[5;77;1m"):
        assert b"\x1b]" + sequence not in terminal.seen
    assert b"\x1b[5;77;1m" not in terminal.seen


def test_the_worst_known_text_in_every_field(terminals: Terminals) -> None:
    """Thirty payloads, each in the run's id, status, branch, repository and platform, and in health.

    One branch is a megabyte long: in every field, the console would read ten megabytes at each poll.
    """
    with Lab() as board:
        hostile_board(board, [text[:20_000] for text in SEQUENCES])
        board.put("run_yyy_long", "working", created=598.0, branch_name=max(SEQUENCES, key=len))
        terminal = terminals(board.base_url)
        terminal.shows("the-marker")
        visit(terminal)
        # What is followed ends, and is told: a toast, the strip, the window's title.
        for run in board.runs.values():
            run.update(status="failed", updated_at=stamp(700.0))
        board.health = {"github": {"status": SEQUENCES[0], "host": "".join(SEQUENCES[:6])}}
        terminal.press("r", "2", "6", "1")

    assert_clean(terminal)


def test_an_error_message_is_no_way_in_either(terminals: Terminals) -> None:
    """The service refuses, and says so with sequences; the banner and the card show them as text."""
    body: dict[str, Any] = {"message": "".join(SEQUENCES[:12]) + "refused-by-the-service", "error_code": SEQUENCES[0]}
    with RefusingBoard(body) as board:
        terminal = terminals(board.base_url)
        terminal.shows("403")
        # There is no row to act on: the rooms tell it, and what lies over them.
        visit(terminal, (*TABS, *OVER_ALL))

    assert_clean(terminal)


class RefusingBoard(Lab):
    """Answers each list request with a 403 and a body."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.body = body

    def answer(self, request: Received) -> Step:
        return Respond(403, self.body)
