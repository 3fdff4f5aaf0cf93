"""Page tokens: where a page ended, signed, and bound to the filters it was made for."""

import base64
import binascii
import hashlib
import hmac
import json
from typing import Final

from service.api.failures import ApiFailureError, bad_request
from service.store.runs import Filters

_MARK_BYTES: Final = 16


class PageToken:
    """Writes and reads the tokens of one filtered list."""

    def __init__(self, key: bytes, filters: Filters) -> None:
        self._key = key
        self._filters = json.dumps([getattr(filters, name) for name in Filters.__slots__]).encode()

    def after(self, created_at: int, run_id: str) -> str:
        """Return the token of the page that comes after a run."""
        place = json.dumps([created_at, run_id], separators=(",", ":")).encode()
        return _written(self._mark(place) + place)

    def read(self, token: str) -> tuple[int, str]:
        """Return the (created_at, id) that a token stands for.

        Raises:
            Failure: 400, it is not ours, or was made for other filters.
        """
        try:
            raw = base64.b64decode(token.encode() + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error) as error:
            raise _bad() from error
        mark, place = raw[:_MARK_BYTES], raw[_MARK_BYTES:]
        # Base64 can spell the same bytes in several ways; only our own spelling is our token.
        if not hmac.compare_digest(mark, self._mark(place)) or _written(raw) != token:
            raise _bad()
        created_at, run_id = json.loads(place)
        return int(created_at), str(run_id)

    def _mark(self, place: bytes) -> bytes:
        return hmac.digest(self._key, self._filters + b"\0" + place, hashlib.sha256)[:_MARK_BYTES]


def _written(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bad() -> ApiFailureError:
    return bad_request(
        "invalid_page_token", "page_token must be the next_token of a page with the same filters; start from the first"
    )
