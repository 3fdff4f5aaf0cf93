"""Identifiers: time-ordered where they are listed, unguessable where they grant access."""

import hashlib
import re
import secrets
import unicodedata
from collections.abc import Callable
from typing import Final

_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS: Final = 80
_ULID_LENGTH: Final = 26
_SLUG_WORDS: Final = 6
_SLUG_LENGTH: Final = 40
_FOREIGN: Final = "æœøłđðþıабвгґдеєжзиіклмнопрстуфхцчшщъыьэюяαβγδεζηθικλμνξοπρστυφχψω"
"""Letters without an ASCII form in Unicode."""
_LATIN: Final = (
    "ae oe o l d d th i a b v g g d e ye zh z i i k l m n o p r s t u f kh ts ch sh shch  y  e yu ya "
    "a v g d e z i th i k l m n x o p r s t y f ch ps o"
)
"""Their usual transcriptions; those of the hard and the soft sign are empty."""
_LETTERS: Final = dict(zip(map(ord, _FOREIGN), _LATIN.split(" "), strict=True))
TOKEN_PREFIX: Final = "rwt_"  # noqa: S105 — the visible start of every token, not a token


def ulid(micros: int, random_bits: Callable[[int], int] = secrets.randbits) -> str:
    """Return a 26-character ULID; later ids sort later (to the millisecond)."""
    value = (micros // 1000) << _RANDOM_BITS | random_bits(_RANDOM_BITS)
    return "".join(_CROCKFORD[value >> (5 * digit) & 31] for digit in reversed(range(_ULID_LENGTH)))


def new_token() -> str:
    """Return a bearer token: 256 random bits, shown once and stored only as its digest (spec 5.4)."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> str:
    """Return a token's stored form; SHA-256 is enough, because 256 random bits cannot be guessed."""
    return hashlib.sha256(token.encode()).hexdigest()


def slug(text: str) -> str:
    """Return lower-case ASCII words joined with dashes, safe in branch names and URLs; may be empty, as for Chinese."""
    plain = unicodedata.normalize("NFKD", text).casefold().translate(_LETTERS).encode("ascii", "ignore").decode()
    return "-".join(re.findall(r"[a-z0-9]+", plain)[:_SLUG_WORDS])[:_SLUG_LENGTH].strip("-")


def address_key(url: str) -> str:
    """Return a digest of a repository's address, used to name its files in the data folder."""
    return hashlib.sha256(url.encode()).hexdigest()[:32]
