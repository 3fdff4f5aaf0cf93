"""Request bodies: bounded, strict JSON, validated into frozen models; every fault is a 400 that names the field."""

import json
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any, Final, NoReturn, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError
from pydantic.config import JsonDict
from starlette.requests import ClientDisconnect

from service.api.context import Reserve, context_of
from service.api.errors import HttpError, bad_request, describe_failures
from service.errors import first_fault
from service.reference import BRANCH, MAX_BRANCH, NO_NUL, PLATFORMS, SEGMENT
from service.store.messages import Timing

_MAX_INTEGER: Final = 2**63 - 1
_MAX_DEPTH: Final = 64
_LARGE: Final = 16 << 10
"""Larger bodies are parsed in a thread, so that other requests are not delayed."""
_SMALL: Final = 256 << 10
"""The first bytes of each body, which are not counted against the reserve."""

Body = TypeVar("Body", bound=BaseModel)
AnyText = Annotated[str, Field(json_schema_extra={"pattern": NO_NUL})]
Text = Annotated[str, Field(min_length=1, json_schema_extra={"pattern": NO_NUL})]


# As in JSON Schema, 5.0 is an integer.
_WHOLE: Final = BeforeValidator(lambda value: int(value) if isinstance(value, float) and value.is_integer() else value)


class _Strict(BaseModel):
    # Unknown fields are ignored: a client may be newer than this service.
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", hide_input_in_errors=True)


# The published patterns are not validated here: the endpoints check these fields, with better messages.
_REPOSITORY: Final = rf"^{SEGMENT}(\.git)?$"
_PROJECT_PATH: Final = rf"^{SEGMENT}(/{SEGMENT}){{1,19}}(\.git)?$"
# Bounds are published as floating-point numbers; this is the largest one that is not rounded up.
_INT64: Final[JsonDict] = {"format": "int64", "maximum": 2**63 - 1024}
_PROJECT_ID: Final[JsonDict] = {"type": "integer", "minimum": 1, **_INT64}
_NOT_BLANK: Final = r"^[^\x00]*[^\s\x00\x85][^\x00]*$"
_LABEL: Final = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_ATOM: Final = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_EMAIL: Final = (
    rf"^(?![^@]{{65}})(?![^@]*@([^@]*\.)?[A-Za-z0-9]{{2}}--){_ATOM}(\.{_ATOM})*@({_LABEL}\.)+[A-Za-z]{{1,63}}$"
)
_CONTENT: Final = (
    f"At any depth: no text or name may contain NUL or half of a surrogate pair, integers must fit into 64 bits (their "
    f"size is at most {_MAX_INTEGER}), and numbers into a double. At most {_MAX_DEPTH} levels may be nested. "
    f"The operator limits the size of the body (413)."
)
_OWNED: Final = {"owner": f"^{SEGMENT}$", "repo": _REPOSITORY}
_REFERENCES: Final = (
    *((name, _OWNED) for name, host in PLATFORMS.items() if not host.has_groups),
    ("gitlab", {"project_path": _PROJECT_PATH}),
    ("gitlab", {"group": f"^{SEGMENT}(/{SEGMENT}){{0,18}}$", "project": _REPOSITORY}),
)
"""The fields in a repository reference's data, for each platform; with project_path, the other form is ignored."""


def _reference_schema(platform: str, fields: dict[str, str]) -> JsonDict:
    properties: JsonDict = {name: {"type": "string", "pattern": pattern} for name, pattern in fields.items()}
    data: JsonDict = {"type": "object", "required": [*fields], "properties": properties}
    data |= {"not": {"required": ["project_path"]}} if "group" in fields else {}
    return {"properties": {"platform": {"const": platform}, "data": data}}


Words = Annotated[str, Field(min_length=1, pattern=r"\S", json_schema_extra={"pattern": _NOT_BLANK})]
_BRANCH: Final[JsonDict] = {"minLength": 1, "maxLength": MAX_BRANCH, "pattern": BRANCH}
_BRANCH_NAME: Final = f"A name that git accepts, of at most {MAX_BRANCH} bytes in UTF-8."
BranchName = Annotated[str, Field(description=_BRANCH_NAME, json_schema_extra=_BRANCH)]


class OrganizationCreation(_Strict):
    """Body of POST /external/organizations (spec 2.1)."""

    email: Annotated[
        Text,
        Field(
            description="Its domain must be able to receive mail: reserved ones, such as .test and .invalid, are "
            "refused. Valid addresses in other scripts, which the pattern does not cover, are accepted.",
            json_schema_extra={"format": "email", "maxLength": 254, "pattern": _EMAIL},
        ),
    ]
    offer_code: AnyText | None = None


class RepositoryReference(_Strict):
    """A repository reference (spec 2.3)."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [_reference_schema(*form) for form in _REFERENCES]})

    platform: Annotated[Text, Field(json_schema_extra={"enum": [*PLATFORMS]})]
    data: dict[str, object]


class RunStart(_Strict):
    """Body of POST /external/runs (spec 4.3)."""

    instructions: Words
    repository: RepositoryReference
    branch_name: BranchName | None = None
    run_id: AnyText | None = None
    metadata: Annotated[
        dict[str, object] | None,
        Field(description="At most 65,536 bytes as JSON in UTF-8, unless the operator sets another limit."),
    ] = None


class RunMessage(_Strict):
    """Body of POST /external/runs/{run_id}/messages, an extension of the specification (docs/dev/api.md)."""

    text: Annotated[Words, Field(max_length=20_000)]
    when: Annotated[
        Timing,
        Field(description="now: while the agent works; end: after its turn; stop: stop the turn, then deliver it."),
    ] = "now"


class AgentStart(_Strict):
    """Body of POST /external/agents/{name}/runs (spec 4.4)."""

    repository: Text
    branch_name: BranchName | None = None
    inputs: dict[str, JsonValue] | None = None


class ProjectOnboarding(_Strict):
    """Body of POST /external/gitlab/projects (spec 4.6; the shape is our decision)."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["project_id"], "properties": {"project_id": _PROJECT_ID}},
                {"required": ["project_path"], "properties": {"project_path": {"type": "string"}}},
            ]
        }
    )

    project_id: Annotated[int, Field(ge=0, le=_MAX_INTEGER, json_schema_extra=_INT64), _WHOLE] | None = None
    """The project's id; no project has the id 0, so 0 counts as left out."""
    project_path: Annotated[Text, Field(json_schema_extra={"pattern": _PROJECT_PATH})] | None = None


def body_reader(model: type[Body]) -> Callable[[Request], Awaitable[Body]]:
    """Return a dependency that parses the body of a request into a model (400, 413 or 415 if it cannot)."""

    async def read(request: Request) -> Body:
        media, _, parameters = request.headers.get("content-type", "").lower().partition(";")
        charset = parameters.partition("charset=")[2].strip(' "') or "utf-8"
        if media.strip() != "application/json" or charset not in {"utf-8", "utf8", "us-ascii"}:
            raise HttpError(415, "unsupported_media_type", "send the body as 'Content-Type: application/json' in UTF-8")
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise HttpError(415, "unsupported_media_type", "send the body without a content encoding")
        raw = await read_bytes(request, context_of(request).settings.limits.body_bytes)
        if len(raw) < _LARGE:
            return _validate(model, raw)
        return await context_of(request).parsing.run(partial(_validate, model, raw))

    return read


def _validate(model: type[Body], raw: bytes) -> Body:
    try:
        document: object = json.loads(
            raw.decode("utf-8"), parse_int=_integer, parse_float=_number, parse_constant=_refuse_constant
        )
    except UnicodeDecodeError as error:
        raise bad_request("malformed_json", f"the body is not UTF-8: byte {error.start} cannot be read") from error
    except json.JSONDecodeError as error:
        text = f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise bad_request("malformed_json", text) from error
    except RecursionError as error:
        raise bad_request("malformed_json", "the body is nested too deeply") from error
    except ValueError as error:
        raise bad_request("malformed_json", f"the body cannot be taken: {error}") from error
    _check_content(document)
    try:
        return model.model_validate(document)
    except ValidationError as error:
        text = "the body must be a JSON object"
        if isinstance(document, dict):
            text = first_fault(error)
        raise bad_request("invalid_request", text) from error


NewOrganization = Annotated[OrganizationCreation, Depends(body_reader(OrganizationCreation))]
NewRun = Annotated[RunStart, Depends(body_reader(RunStart))]
NewMessage = Annotated[RunMessage, Depends(body_reader(RunMessage))]
NewAgentRun = Annotated[AgentStart, Depends(body_reader(AgentStart))]
NewProject = Annotated[ProjectOnboarding, Depends(body_reader(ProjectOnboarding))]


def describe_answers(
    status: int,
    answer: type[BaseModel],
    *failures: int,
    takes: type[BaseModel] | None = None,
    parameters: Sequence[dict[str, object]] = (),
) -> dict[str, Any]:
    """Return a route's status, and what OpenAPI says of its parameters, of the body it takes, and of its answers."""
    extra: dict[str, object] = {"parameters": [*parameters]} if parameters else {}
    if takes is not None:
        schema = takes.model_json_schema()
        content = {"application/json": {"schema": _inline(schema, schema.pop("$defs", {}))}}
        extra["requestBody"] = {"description": _CONTENT, "required": True, "content": content}
        failures = (*failures, 400, 413, 415)
    responses = {status: {"model": answer}, **describe_failures(*failures)}
    return {"status_code": status, "response_model": None, "openapi_extra": extra, "responses": responses}


def example(**value: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [value]})


def parameter(name: str, text: str, **schema: object) -> dict[str, object]:
    """Return the OpenAPI description of an optional parameter of a query."""
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": text}


def _inline(schema: Any, definitions: dict[str, Any]) -> Any:
    """Inline the definitions: in OpenAPI, `#/$defs` would not resolve."""
    if isinstance(schema, list):
        return [_inline(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    definition = definitions.get(str(schema.get("$ref", "")).removeprefix("#/$defs/"), schema)
    return {key: _inline(value, definitions) for key, value in definition.items()}


async def read_bytes(request: Request, limit: int, reserve: Reserve | None = None) -> bytes:
    """Return a request's body (413: too large; 400: cut off; 503: it is large, and the reserve is used up)."""
    # The rest of a body that is too large is not read, so the connection cannot be reused.
    too_large = HttpError(413, "body_too_large", f"the body may have at most {limit} bytes", {"Connection": "close"})
    if int(request.headers.get("content-length", 0)) > limit:
        raise too_large
    chunks: list[bytes] = []
    size = taken = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if reserve is not None and size > _SMALL:
                if len(chunk) > reserve.left:
                    text = "too many large bodies arrive at the moment"
                    raise HttpError(503, "too_busy", text, {"Connection": "close", "Retry-After": "5"})
                reserve.left -= len(chunk)
                taken += len(chunk)
            if size > limit:
                raise too_large
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise bad_request("incomplete_body", "the connection ended before the body did") from error
    finally:
        if reserve is not None:
            reserve.left += taken
    return b"".join(chunks)


def _check_content(document: object) -> None:
    """Refuse content that the database or git cannot store: NUL, lone surrogates, too many levels."""
    level = [document]
    for _ in range(_MAX_DEPTH):
        if not level:
            return
        deeper: list[object] = []
        for value in level:
            if isinstance(value, dict):
                deeper += [*value, *value.values()]
            elif isinstance(value, list):
                deeper += value
            elif isinstance(value, str):
                try:
                    # A regular expression would block the interpreter, and so all other requests, for 8 ms per MB.
                    is_storable = "\0" not in value and bool(value.isascii() or value.encode())
                except UnicodeEncodeError:
                    is_storable = False
                if not is_storable:
                    raise bad_request("invalid_text", "no text in the body may hold NUL or half of a surrogate pair")
        level = deeper
    raise bad_request("malformed_json", f"the body is nested more than {_MAX_DEPTH} levels deep")


def _integer(digits: str) -> int:
    if len(digits) > len(str(_MAX_INTEGER)) + 1 or abs(int(digits)) > _MAX_INTEGER:
        raise ValueError("an integer does not fit into 64 bits")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
