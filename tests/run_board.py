"""The former name of the lab."""

from tests.lab import START, Lab, stamp

__all__ = ["START", "Board", "served", "stamp"]

Board = Lab


def served(board: Lab) -> Lab:
    """The board, which listens while its context lasts."""
    return board
