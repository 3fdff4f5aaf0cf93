"""The bodies of answers, decoded into records: strict about ids and the way to the next page, tolerant of the rest.

Unknown fields, statuses and platforms are kept as received, and so is a field of another type than the spec's. A time
that cannot be read is unknown. NaN, and text that is not JSON, make the whole answer unusable.
"""

import json
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from app.api.errors import UnusableAnswerError
from app.api.requests import Answer, OnboardProject, WriteRequest
from app.api.timestamps import timestamp
from storage.records import WRITE_KINDS, HealthSample, Organization, Repository, Run, RunPage
from storage.records.health import NO_STATUS

_COUNTS: Final = range(2**63)
_ODD_IDS: Final = range(-(2**63), 2**63)
_LONGEST_ID: Final = 1_000
_DEEPEST: Final = 100
_NESTING: Final = frozenset({dict, list})
_STR: Final = frozenset({str})
_Record = TypeVar("_Record")


def read(body: bytes, status: int | None = None, *, may_repair: bool = False) -> dict[str, Any]:
    r"""The JSON object of a body.

    `may_repair`: an escape such as `\ud800` without its other half becomes U+FFFD.

    Raises:
        UnusableAnswerError: It is not one.
    """
    try:
        try:
            found = msgspec.json.decode(body)
        except ValueError:
            if not (may_repair and b"\\u" in body):
                raise
            # Half of a surrogate pair in one field would hide a whole page.
            text = json.dumps(json.loads(body), ensure_ascii=False)
            found = msgspec.json.decode(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    except (ValueError, RecursionError) as error:
        raise UnusableAnswerError(f"The service's answer cannot be read: {error}.", status=status) from error
    if _is_deep(found, _DEEPEST):
        raise UnusableAnswerError("The service's answer cannot be read: it is nested too deeply.", status=status)
    return as_object(found, status)


def _is_deep(value: object, most: int) -> bool:
    """Whether more than `most` objects and lists lie within each other, which could exhaust the stack elsewhere."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return most == 0 or any(_is_deep(each, most - 1) for each in inner if type(each) in _NESTING)


def as_object(received: object, status: int | None = None) -> dict[str, Any]:
    """An object of an answer.

    Raises:
        UnusableAnswerError: It is something else.
    """
    if not isinstance(received, dict):
        raise UnusableAnswerError("The service's answer cannot be read: an object is missing.", status=status)
    return received


def fields(received: object) -> dict[str, Any]:
    """The fields of an object of an answer, with its times decoded. Raises as `as_object`."""
    received = as_object(received)
    return {name: timestamp(each) if name.endswith("_at") or name == "at" else each for name, each in received.items()}


def record(kind: type[_Record], found: dict[str, Any]) -> _Record:
    """The record with these fields; others are ignored.

    Raises:
        UnusableAnswerError: A field is missing, or of another type.
    """
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise UnusableAnswerError(f"The service's answer cannot be read: {error}.") from error


def identity(found: dict[str, Any], name: str, status: int | None = None) -> str:
    """The id in a field.

    Raises:
        UnusableAnswerError: There is none.
    """
    if not (isinstance(received := found.get(name), str) and 0 < len(received) <= _LONGEST_ID):
        raise UnusableAnswerError(f"The service's answer cannot be read: {name} is missing.", status=status)
    return received


def _shown(received: object) -> str:
    """A field as text, whatever its type; null and a missing one are empty."""
    return "" if received is None else received if isinstance(received, str) else _as_json(received)


def _as_json(received: object) -> str:
    return msgspec.json.encode(received).decode()


def _run(received: object) -> Run | None:
    """A run with all its fields, odd ones as JSON (spec 2.4); None: it has no usable id."""
    found = received if isinstance(received, dict) else {}
    run_id = found.get("run_id")
    if not (isinstance(run_id, str) and 0 < len(run_id) <= _LONGEST_ID) and not (
        type(run_id) is int and run_id in _ODD_IDS
    ):
        return None
    return Run(
        run_id=str(run_id),
        status=_shown(found.get("status")),
        branch_name=_shown(found.get("branch_name")),
        repository=_repository(found.get("repository")),
        created_at=timestamp(found.get("created_at")),
        updated_at=timestamp(found.get("updated_at")),
        raw_json=_as_json(found),
    )


def _repository(received: object) -> Repository:
    if not isinstance(received, dict):
        return Repository.of("", received)
    platform, data = _shown(received.get("platform")), received.get("data")
    if isinstance(data, dict) and set(map(type, data.values())) <= _STR:
        return _known_repository(platform, tuple(data.items()))
    return Repository.of(platform, {} if data is None else data)


# A history names few repositories many times.
@lru_cache(maxsize=1_000)
def _known_repository(platform: str, data: tuple[tuple[str, str], ...]) -> Repository:
    return Repository.of(platform, dict(data))


def run_page(body: bytes) -> RunPage:
    """A page of the run list; entries without a usable id are counted, not kept.

    Raises:
        UnusableAnswerError: The body is not what spec 2.5 says.
    """
    page = read(body, may_repair=True)
    listed, token, total = page.get("runs"), page.get("next_token"), page.get("total_count")
    if not isinstance(listed, list) or not isinstance(token, str | None):
        raise UnusableAnswerError("The service's answer cannot be read: it is not a page of runs.")
    runs = tuple([run for run in map(_run, listed) if run is not None])
    total = total if type(total) is int and total in _COUNTS else None
    return RunPage(runs, token or None, total, dropped=len(listed) - len(runs))


def health_report(body: bytes) -> tuple[HealthSample, ...]:
    """A health answer; a platform that is null is not connected, one without a status has `NO_STATUS`.

    Raises:
        UnusableAnswerError: The body is not what spec 2.7 says.
    """
    platforms = read(body, may_repair=True).get("code_hosting") or {}
    if not isinstance(platforms, dict):
        raise UnusableAnswerError("The service's answer cannot be read: code_hosting is not an object.")
    samples = []
    for platform, received in platforms.items():
        if received is not None:
            # A value that is not an object is taken as its status.
            found = received if isinstance(received, dict) else {"status": received}
            host, group = (None if found.get(name) is None else _shown(found[name]) for name in ("host", "group"))
            status = _shown(found.get("status")).strip() or NO_STATUS
            samples.append(HealthSample(platform, status, host, group, _as_json(received)))
    return tuple(samples)


def answer(request: WriteRequest, status: int, body: bytes) -> Answer:
    """The answer to a write; its id alone is required, since an id proves that the write was carried out.

    Raises:
        UnusableAnswerError: There is no id; the write has probably been carried out.
    """
    found, raw, kind = read(body, status), body.decode(), WRITE_KINDS[request.kind]
    if isinstance(request, OnboardProject):
        # The spec names this endpoint without its answer (4.6): this is the design's decision.
        if not isinstance(found.get("success"), bool):
            raise UnusableAnswerError("The service's answer cannot be read: success is missing.", status=status)
        return Answer(status, raw, _shown(found.get("project_path")) or request.project_path or "")
    result_id = identity(found, kind.fields[0], status)
    return Answer(status, raw, result_id, _run(found) if kind.made == "run" else None)


def organization(body: str) -> Organization:
    """A created organization (spec 2.2), from the answer to its creation.

    Raises:
        UnusableAnswerError: It has no id.
    """
    found = read(body.encode())
    return Organization(
        organization_id=identity(found, "organization_id"),
        organization_name=_shown(found.get("organization_name")),
        organization_slug=_shown(found.get("organization_slug")),
        parent_organization_id=_shown(found.get("parent_organization_id")),
        raw_json=body,
    )
