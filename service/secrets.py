"""Secrets that the service knows: they are masked in everything that it stores, and never pushed."""

import json
import os
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from service.network import PROXY_VARIABLES

MASK: Final = "[masked]"
_HARMLESS: Final = re.compile(
    r"PATH|LANG|LANGUAGE|LC_\w+|TZ|TERM|USER|SHELL|.*_(URL|HOST|PORT|MODEL|REGION|PROXY|PATH|DIR|LEVEL|TIMEOUT)",
    re.IGNORECASE,
)
"""Names of variables whose values are not secret; the value of any other variable that an agent gets is."""
_LONE_SURROGATES: Final = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""What JSON can hold and UTF-8 cannot."""
_MIN_SECRET: Final = 6
"""The shortest value that is masked: shorter ones occur in any text."""


class Secrets:
    """The values of some names, in each form in which a program is likely to print them."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._names = {
            form: name for name, value in values.items() if len(value) >= _MIN_SECRET for form in _forms(value)
        }
        # The longest first: one may be the beginning of another.
        self._forms = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._forms)) or b"(?!)")
        self._longest = max(map(len, self._forms), default=0)

    def mask(self, text: str) -> str:
        """Return the text without the values, and without halves of characters other than undecoded bytes."""
        whole = _LONE_SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)
        return self.mask_bytes(whole.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def mask_bytes(self, data: bytes) -> bytes:
        # Much faster than the pattern, and most output has no secrets.
        if any(form in data for form in self._forms):
            return self._pattern.sub(MASK.encode(), data)
        return data

    def unchanging(self, data: bytes) -> int:
        """Return the position up to which further data cannot change the masking."""
        certain = len(data) - self._longest
        ends = 0
        if any(form in data for form in self._forms):
            for match in self._pattern.finditer(data):
                if match.start() > certain:
                    # The end may be the beginning of a longer value.
                    return match.start()
                ends = match.end()
        # The end that may be the beginning of a value.
        end = data[max(0, len(data) - self._longest + 1) :] if self._longest else b""
        begun = (size for size in range(len(end), 0, -1) if any(form.startswith(end[-size:]) for form in self._forms))
        return max(ends, len(data) - next(begun, 0))

    def named_in(self, pieces: Iterable[bytes]) -> str | None:
        """Return the name of the first value found in a stream of bytes, or None."""
        tail = b""
        for piece in pieces:
            data = tail + piece
            for form in self._forms:
                if form in data:
                    return self._names[form]
            tail = data[max(0, len(data) - self._longest + 1) :]
        return None


@dataclass(eq=False)
class MaskedStream:
    """Masks bytes and passes them on to `send`; an end that may be the beginning of a value is held back."""

    _secrets: Secrets
    _send: Callable[[bytes], None]
    _held: bytes = b""

    def write(self, piece: bytes) -> None:
        """Add a piece, and pass on what further pieces cannot change."""
        self._held += piece
        if at := self._secrets.unchanging(self._held):
            self._send(self._secrets.mask_bytes(self._held[:at]))
            self._held = self._held[at:]

    def end(self) -> None:
        if self._held:
            self._send(self._secrets.mask_bytes(self._held))


def _forms(value: str) -> set[bytes]:
    plain = value.encode("utf-8", "surrogateescape")
    encoded = {b64encode(login).rstrip(b"=") for login in (plain, b"x-access-token:" + plain)}
    return {plain, quote(value, safe="").encode(), json.dumps(value)[1:-1].encode(), *encoded}


def of_environment(names: Iterable[str | None]) -> dict[str, str]:
    """Return the values of those named variables that are set in the service's environment and may be secret."""
    return {name: value for name in names if name and not _HARMLESS.fullmatch(name) and (value := os.environ.get(name))}


def of_proxies() -> dict[str, str]:
    passwords = {name: of_url(os.environ.get(name, "")).values() for name in PROXY_VARIABLES}
    return {name: value for name, values in passwords.items() for value in values}


def of_url(url: str) -> dict[str, str]:
    """Return the password in an address, under a name that says where it comes from."""
    try:
        password = urlsplit(url).password if "://" in url else None
    except ValueError:
        return {}
    return {"the repository's URL": unquote(password)} if password else {}
