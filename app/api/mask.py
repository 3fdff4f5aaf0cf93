"""The token is hidden in all that is logged, stored or shown."""

import json
from functools import cached_property
from typing import Final
from urllib.parse import quote

MASK: Final = "[token]"
SHORTEST: Final = 6
"""A shorter token protects nothing, and would occur in ordinary words."""


class Mask:
    """Hides one token in text and bytes: as it is, JSON-escaped, percent-encoded or written in hexadecimal escapes."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __repr__(self) -> str:
        return "Mask(hidden)"

    def text(self, text: str) -> str:
        """The text without the token."""
        for form in self._forms:
            text = text.replace(form, MASK)
        return text

    def body(self, body: bytes) -> bytes:
        """A body without the token: the mask is valid inside JSON."""
        for form in self._encoded:
            body = body.replace(form, MASK.encode())
        return body

    @cached_property
    def _forms(self) -> tuple[str, ...]:
        token = self._token
        if len(token) < SHORTEST:
            return ()
        escaped = json.dumps(token)[1:-1]
        codes = "".join(f"\\u{ord(letter):04x}" for letter in token)
        percent = "".join(f"%{byte:02X}" for byte in token.encode())
        quoted = quote(token, safe="")
        forms = (token, escaped, escaped.replace("/", "\\/"), codes, _upper(codes), percent, percent.lower(), quoted)
        # Longer forms first: they may hold a shorter one.
        return tuple(sorted({*forms, quoted.lower() if quoted != token else quoted}, key=len, reverse=True))

    @cached_property
    def _encoded(self) -> tuple[bytes, ...]:
        return tuple(form.encode() for form in self._forms)


def _upper(codes: str) -> str:
    return codes.upper().replace("\\U", "\\u")
