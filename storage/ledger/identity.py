"""Ids of actions: in the order of time when sorted as text, and never the same twice."""

import secrets
from datetime import datetime
from typing import Final

from storage.times import to_us

PREFIX: Final = "act_"

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Crockford's: no letter that a person could take for a digit."""

_TIME_DIGITS: Final = 10
_RANDOM_DIGITS: Final = 16
_BITS: Final = 5
_MILLISECOND_US: Final = 1000


def new_action_id(at: datetime) -> str:
    """`act_` and 26 characters: 48 bits of milliseconds, then 80 random ones."""
    milliseconds = to_us(at) // _MILLISECOND_US
    return PREFIX + _digits(milliseconds, _TIME_DIGITS) + _digits(secrets.randbits(80), _RANDOM_DIGITS)


def _digits(number: int, count: int) -> str:
    return "".join(_ALPHABET[(number >> (_BITS * place)) & 31] for place in reversed(range(count)))
