"""Which requests a provider gets from agents: exact methods and paths, the models that they may name, and no others."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode

from service.agents.prices import without_date
from service.errors import ServiceError
from service.text import items

_AMBIGUOUS: Final = re.compile(r"[^!-~]|[\\#]|//|/\.{1,2}(/|$)|%(?!3a|40)", re.IGNORECASE)
"""What two servers could read differently in a path. Of escapes, only colon and `@` pass."""
_NAME: Final = r"[A-Za-z0-9][\w.:@-]*"
_VERTEX: Final = r"/v1/projects/[A-Za-z0-9][\w.:-]*/locations/[a-z0-9][a-z0-9-]*/publishers/anthropic/models"
_COLON: Final = "(?::|%3[Aa])"
_ARN: Final = (
    rf"arn{_COLON}aws[a-z-]*{_COLON}bedrock{_COLON}[a-z0-9-]+{_COLON}[0-9]*{_COLON}"
    rf"[a-z-]+%2[Ff][A-Za-z0-9](?:[\w.-]|{_COLON})*"
)
_BEDROCK: Final = rf"/v1/model/(?P<model>{_ARN}|[A-Za-z0-9](?:[\w.-]|{_COLON})*)"
_ARN_IN_PATH: Final = re.compile(rf"(?<=/model/){_ARN}(?=/)", re.ASCII)
"""The only place for an escaped slash: Bedrock's name for a profile or an imported model."""
_ALIAS: Final = re.compile(r"[a-z]+")


class BlockedRequestError(ServiceError):
    """A request was blocked; the text says why."""


class ClosedPathError(BlockedRequestError):
    """The path is closed. This is not the agent's fault: programs also check for updates and send statistics."""


def _path(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider's address, headers and open paths."""

    base_url: str
    header: str
    """The header that carries the key."""
    prefix: str
    """The text before the key in that header."""
    billed: re.Pattern[str]
    """Paths that cost tokens, by POST; the model's name is in the body, or in the group."""
    free: dict[str, re.Pattern[str]]
    """Other paths that agents may use, by method; all others (files, batches, administration) are closed."""
    path_prefix: re.Pattern[str] | None = None
    """The beginning of a path that the operator's base URL replaces; None: the version, if the URL ends with it."""


PROVIDERS: Final = {
    "anthropic": Provider(
        "https://api.anthropic.com",
        "x-api-key",
        "",
        _path(r"/v1/messages"),
        {"POST": _path(r"/v1/messages/count_tokens"), "GET": _path(rf"/v1/models(/{_NAME})?")},
    ),
    "openai": Provider(
        "https://api.openai.com",
        "Authorization",
        "Bearer ",
        _path(r"/v1/(chat/completions|completions|responses|responses/compact|embeddings)"),
        # Compatible servers have models such as `meta/llama-4`.
        {"GET": _path(rf"/v1/models(/{_NAME}){{0,3}}")},
    ),
    "gemini": Provider(
        "https://generativelanguage.googleapis.com",
        "x-goog-api-key",
        "",
        _path(
            r"/v1(?:beta)?/models/(?P<model>[A-Za-z0-9][\w.-]*):(generateContent|streamGenerateContent|embedContent)"
        ),
        {
            "POST": _path(r"/v1(beta)?/models/[A-Za-z0-9][\w.-]*:countTokens"),
            "GET": _path(r"/v1(beta)?/models(/[A-Za-z0-9][\w.-]*)?"),
        },
    ),
    "vertex": Provider(
        "",
        "Authorization",
        "Bearer ",
        _path(rf"{_VERTEX}/(?!count-tokens:)(?P<model>[A-Za-z0-9][\w.@-]*):(rawPredict|streamRawPredict)"),
        {"POST": _path(rf"{_VERTEX}/count-tokens:rawPredict")},
        _path(r"/v1/projects/[^/]+/locations/[^/]+"),
    ),
    "bedrock": Provider(
        "",
        "Authorization",
        "Bearer ",
        _path(rf"{_BEDROCK}/(invoke|invoke-with-response-stream)"),
        {"POST": _path(rf"{_BEDROCK}/count-tokens")},
        _path(r"/v1"),
    ),
}


@dataclass(frozen=True, slots=True)
class Route:
    """An open path of a provider."""

    path: str
    query: str
    """The query, without a key."""
    is_billed: bool
    model: str
    """The model's name if the path holds it."""


def route_of(provider: Provider, method: str, target: str) -> Route:
    """Decide about a request's method and target, as they were sent.

    Raises:
        ClosedPathError: It is not open to agents.
    """
    path, _, query = target.partition("?")
    is_plain = target.isascii() and target.isprintable() and path.startswith("/")
    if is_plain and not _AMBIGUOUS.search(_ARN_IN_PATH.sub("arn", path)):
        # A base URL may hold the version, as OpenAI-compatible servers have it, or not.
        path = path if re.match("/v1(beta)?/", path) else f"/v1{path}"
        billed = provider.billed.fullmatch(path) if method == "POST" else None
        free = provider.free.get(method)
        if billed is not None or (free is not None and free.fullmatch(path)):
            query_without_key = urlencode([pair for pair in parse_qsl(query) if pair[0] != "key"])
            model = "" if billed is None else unquote(billed.groupdict().get("model") or "")
            return Route(path, query_without_key, billed is not None, model)
    raise ClosedPathError(f"{method[:20]} {target[:200]} is not open to agents")


def read_body(body: bytes) -> dict[str, Any]:
    """Read the body of a request that costs tokens.

    Raises:
        BlockedRequestError: It is no JSON object, or one that the provider could read differently.
    """
    try:
        document = json.loads(body.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise BlockedRequestError("its body is not JSON, or names a key twice") from error
    if not isinstance(document, dict):
        raise BlockedRequestError("its body is not an object")
    if any(key.lower() in {"model", "models"} and key not in {"model", "models"} for key in document):
        raise BlockedRequestError("its body spells `model` in capitals")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key is there twice")
    return document


def models_in(document: dict[str, Any]) -> Iterator[str]:
    """Yield every model that a body names: the main model, fallbacks, and models for tools."""
    lists = (items(document.get(key)) for key in ("models", "fallbacks", "tools"))
    for holder in chain([document], *lists):
        name = holder.get("model") if isinstance(holder, dict) else holder
        if name is not None:
            yield str(name)[:200]


def check_model(name: str, allowed: tuple[str, ...]) -> None:
    """Check a model against the list; an empty one allows any.

    An entry allows a name, the same name with a date or `-latest`, a pattern with `*`, or, if it is one word such as
    `sonnet`, each model whose name contains that word: programs know models by such words. A word allows no ARN, in
    which anyone may choose the name.

    Raises:
        BlockedRequestError: It is not on the list.
    """
    for entry in allowed:
        is_word = _ALIAS.fullmatch(entry) and not name.startswith("arn:") and entry in re.split(r"[^a-z]+", name)
        if is_word or without_date(name) == without_date(entry) or ("*" in entry and fnmatchcase(name, entry)):
            return
    if allowed:
        fix = f'to allow it, add it to the agent: models = ["{name}"]'
        raise BlockedRequestError(f"the model {name!r} was refused; {fix}")
