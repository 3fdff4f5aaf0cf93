"""What the tests of the Insights room share."""

import pytest

from tests.run_board import Board


@pytest.fixture
def empty_board(board: Board) -> Board:
    """A service without runs."""
    board.runs.clear()
    return board
