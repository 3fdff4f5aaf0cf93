"""GET /external/runs: newest first, filtered, in pages with a keyset cursor (spec 4.2)."""

import base64
import binascii
import hashlib
import hmac
import json
import re
from typing import Any, Final

import sqlalchemy as sa
from fastapi import APIRouter, Request

from service.api.answers import RunListBody
from service.api.auth import Caller, RunReader
from service.api.context import Context, RequestContext
from service.api.errors import HttpError, bad_request, documented
from service.clock import parse_rfc3339
from service.reference import NAMED, NO_NUL, PLATFORMS, checked_path, location, reference
from service.store import hosts, runs
from service.store.runs import Filters, Run

_MARK_BYTES: Final = 16
router = APIRouter()
_DEFAULT_SIZE: Final = 10
_LARGEST_SIZE: Final = 100
_INTEGER: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_KNOWN: Final = ("page_size", "page_token", "status", "repository", "platform", "data", "date_from", "date_to")
_TEXT: Final = {"type": "string", "pattern": NO_NUL}
_DATE: Final = {"type": "string", "format": "date-time"}


class PageToken:
    """Creates and reads the page tokens of one filtered list."""

    def __init__(self, key: bytes, filters: Filters) -> None:
        self._key = key
        self._filters = json.dumps([getattr(filters, name) for name in Filters.__slots__]).encode()

    def after(self, created_at: int, run_id: str) -> str:
        """Return the token of the page that starts after a run."""
        position = json.dumps([created_at, run_id], separators=(",", ":")).encode()
        return _encoded(self._mark(position) + position)

    def read(self, token: str) -> tuple[int, str]:
        """Return the (created_at, id) of a token.

        Raises:
            HttpError: 400, the token is not from this service, or belongs to other filters.
        """
        try:
            raw = base64.b64decode(token.encode() + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error) as error:
            raise _bad() from error
        mark, position = raw[:_MARK_BYTES], raw[_MARK_BYTES:]
        # Base64 can spell the same bytes in several ways; only the issued spelling is accepted.
        if not hmac.compare_digest(mark, self._mark(position)) or _encoded(raw) != token:
            raise _bad()
        created_at, run_id = json.loads(position)
        return int(created_at), str(run_id)

    def _mark(self, position: bytes) -> bytes:
        return hmac.digest(self._key, self._filters + b"\0" + position, hashlib.sha256)[:_MARK_BYTES]


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bad() -> HttpError:
    return bad_request(
        "invalid_page_token",
        "page_token must be the next_token of a page with the same filters; start again with the first page",
    )


def _parameter(name: str, schema: dict[str, Any], text: str) -> dict[str, object]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": text}


_PARAMETERS: Final = [
    _parameter(
        "page_size", {"type": "integer", "format": "int64", "minimum": 1, "maximum": 100, "default": 10}, "Page size."
    ),
    _parameter("page_token", _TEXT, "next_token of the page before."),
    _parameter("status", _TEXT, "Filter by run status."),
    _parameter(
        "repository", {"type": "string", "minLength": 1, "pattern": NAMED}, "owner/repo, group/project or a full URL."
    ),
    _parameter("platform", {"type": "string", "enum": list(PLATFORMS)}, "The other form of the repository filter."),
    _parameter(
        "data", _TEXT, "JSON object of a repository reference; needs platform, and does not go with repository."
    ),
    _parameter("date_from", _DATE, "Start of the range, inclusive."),
    _parameter("date_to", _DATE, "End of the range, inclusive."),
]


@router.get(
    "/external/runs",
    openapi_extra={"parameters": _PARAMETERS},
    response_model=None,
    responses={200: {"model": RunListBody}, **documented(400)},
)
def list_runs(request: Request, context: RequestContext, caller: RunReader) -> dict[str, object]:
    """List runs (spec 2.5, 4.2): total_count counts after the filters, next_token is null on the last page."""
    given: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in _KNOWN:
            continue
        if name in given:
            raise bad_request("invalid_query", f"{name} may be given once")
        if "\0" in value:
            raise bad_request("invalid_query", f"{name} may not hold NUL")
        given[name] = value
    return listed(context, caller, given)


def listed(context: Context, caller: Caller, given: dict[str, str]) -> dict[str, object]:
    """Return a page of the caller's runs for query parameters, each given once.

    Raises:
        HttpError: 400, a parameter is not valid.
    """
    text = given.get("page_size", str(_DEFAULT_SIZE))
    size = int(text) if _INTEGER.fullmatch(text) else 0
    if not 1 <= size <= _LARGEST_SIZE:
        raise bad_request("invalid_page_size", f"page_size must be an integer from 1 to {_LARGEST_SIZE}")
    with context.database.read() as connection:
        connected = {host.host: host.platform for host in hosts.of(connection, caller.organization.id)}
        platform, path = _repository(given, connected)
        filters = Filters(
            organization_id=caller.organization.id,
            status=given.get("status"),
            platform=platform,
            path=path,
            date_from=_instant(given, "date_from", round_up=True),
            date_to=_instant(given, "date_to", round_up=False),
        )
        shown, following, total = page_of(context, connection, filters, given.get("page_token"), size)
    bodies = [run.body for run in shown]
    return {"runs": bodies, "page_size": size, "next_token": following, "total_count": total}


def page_of(
    context: Context, connection: sa.Connection, filters: Filters, token: str | None, size: int
) -> tuple[list[Run], str | None, int]:
    """Return the runs of a page, the token of the next one (None: it is the last), and how many runs match.

    Raises:
        HttpError: 400, the token does not belong to these filters.
    """
    cursor = PageToken(context.page_key, filters)
    one_more = runs.page(connection, filters, None if token is None else cursor.read(token), size + 1)
    shown = one_more[:size]
    following = cursor.after(shown[-1].created_at, shown[-1].id) if len(one_more) > size else None
    return shown, following, context.counts.count(connection, filters)


def _instant(given: dict[str, str], name: str, *, round_up: bool) -> int | None:
    if name not in given:
        return None
    try:
        return parse_rfc3339(given[name], round_up=round_up)
    except ValueError as error:
        hint = "; write '+' as %2B" if " " in given[name] else ""
        raise bad_request("invalid_date", f"{name}: {error}{hint}") from error


def _repository(given: dict[str, str], connected: dict[str, str]) -> tuple[str | None, str | None]:
    """Return the platform and the path to filter by; None for either matches any."""
    platform = given.get("platform")
    if platform is not None and platform not in PLATFORMS:
        raise bad_request("invalid_repository", f"platform must be one of {', '.join(PLATFORMS)}")
    try:
        if "data" in given:
            if platform is None or "repository" in given:
                raise bad_request("invalid_repository", "data needs platform, and does not go with repository")
            data = json.loads(given["data"])
            return platform, reference(platform, data if isinstance(data, dict) else {}).path
        if "repository" in given:
            named, path = _from_text(given["repository"], connected)
            return platform or named, path
    except json.JSONDecodeError as error:
        text = "data must be the JSON object of a repository reference"
        raise bad_request("invalid_repository", text) from error
    except (ValueError, RecursionError) as error:
        raise bad_request("invalid_repository", str(error)) from error
    return platform, None


def _from_text(text: str, connected: dict[str, str]) -> tuple[str | None, str]:
    where = location(text)
    if where is not None:
        return connected.get(where.host), where.path
    for platform in PLATFORMS:
        try:
            return None, checked_path(platform, text)
        except ValueError:
            continue
    raise ValueError("repository must read owner/repo, group/project or a full URL")
