"""The values that settings and rules have in common: their limits, quiet hours, and the base address."""

import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import time, timedelta
from ipaddress import ip_address
from typing import Annotated, Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

from msgspec import Struct

from storage import UnreadableTextError

MAX_WAIT: Final = timedelta(days=7)
"""The longest duration in `[notify]`."""
MAY_BE_EMPTY: Final = "may be empty"
"""Marks a list that may have no entries; a string may be empty if that is its default."""
ONE_OR_MORE: Final = "one or more"
"""Marks a list that may also be written as one string."""


class Between(NamedTuple):
    """The limits of a number or a duration, both included."""

    least: Any
    most: Any


OneOrMore = Annotated[tuple[str, ...], ONE_OR_MORE]
Texts = Annotated[tuple[str, ...], MAY_BE_EMPTY]
Wait = Annotated[timedelta, Between(timedelta(0), MAX_WAIT)]
Repeat = Annotated[timedelta, Between(timedelta(minutes=1), MAX_WAIT)]


class MistakeError(UnreadableTextError):
    """A setting that cannot be used; the reader adds file and line."""

    def __init__(self, key: str, problem: str, fix: str) -> None:
        super().__init__(problem, fix)
        self.key = key


def check_placeholders(key: str, texts: Iterable[str], known: Collection[str]) -> None:
    """Refuse a placeholder that is never filled, with a `MistakeError`."""
    for name in (name for text in texts for name in re.findall(r"\{([^{}]*)\}", text)):
        if name not in known:
            there_are = ", ".join(f"{{{name}}}" for name in known)
            raise MistakeError(key, f"there is no placeholder {{{name}}}.", f"There are: {there_are}.")


class QuietHours(Struct, frozen=True):
    """A part of the day; it spans midnight if it ends earlier than it starts."""

    start: time
    """The start, inclusive."""
    end: time
    """The end, exclusive."""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Hours as users write them: `22:00-07:00`; None: the text is empty. Anything else raises `ValueError`."""
        if not text.strip():
            return None
        if parts := re.fullmatch(r"\s*(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})\s*", text):
            with suppress(ValueError):
                start, end = (time(int(parts[n]), int(parts[n + 1])) for n in (1, 3))
                if start != end:
                    return cls(start, end)
        raise UnreadableTextError(f"{text!r} are not valid hours.", "Write them as in 22:00-07:00.")

    def cover(self, local: time) -> bool:
        """Whether this time of the day is quiet."""
        if self.start < self.end:
            return self.start <= local < self.end
        return local >= self.start or local < self.end


_MAX_LABEL: Final = 63


def base_address(text: str) -> str:
    """The service's base address in its one normal form: lower-case scheme and host, no trailing slash.

    Raises:
        ValueError: It is not an https address (http is for loopback only), or holds a user, a query, a fragment, a port
            out of range or a path that would be rewritten; the message says which.
    """
    stripped = text.strip()
    if not stripped.isascii() or any(character <= " " or character in '\\"<>^`{|}\x7f' for character in stripped):
        raise UnreadableTextError(
            "an address is plain ASCII without blanks.", "Write international names in their xn-- form."
        )
    try:
        parts = urlsplit(stripped)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UnreadableTextError(
            f"this is not a valid address ({error}).", "Write one as in https://a.example/v1."
        ) from error
    if not host or parts.scheme not in {"http", "https"}:
        raise UnreadableTextError(
            "an address begins with https:// and a host.", "Write one as in https://api.example.com/v1."
        )
    if "@" in parts.netloc:
        raise UnreadableTextError("an address holds no user or password.", "The token has its own setting.")
    if parts.query or parts.fragment:
        raise UnreadableTextError("a base address has no query and no fragment.", "End it with the version, as in /v1.")
    segments = parts.path.rstrip("/").split("/")[1:]
    if any(segment in {"", ".", ".."} for segment in segments):
        raise UnreadableTextError("the path holds an empty, `.` or `..` segment.", "Write it out plainly.")
    if not all(0 < len(label) <= _MAX_LABEL for label in host.removesuffix(".").split(".")):
        raise UnreadableTextError(f"{host!r} cannot be a host name.", "Write one such as api.example.com.")
    if parts.scheme == "http" and not is_loopback(host):
        raise UnreadableTextError("http sends the token in the clear.", "Use https.")
    host_text = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host_text}{f':{port}' if port is not None else ''}{parts.path.rstrip('/')}"


def is_loopback(host: str) -> bool:
    """Whether a host name or IP address means this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
