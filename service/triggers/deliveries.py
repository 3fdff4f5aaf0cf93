"""A delivery: the proof that a code host sent it, its id, and the event in it."""

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pydantic import ValidationError

from service.errors import first_fault
from service.reference import PLATFORMS
from service.triggers import github, gitlab
from service.triggers.events import HookEvent, PayloadError

_SIGNATURE: Final = re.compile(r"sha256=[0-9a-f]{64}")
_DELIVERY: Final = re.compile(r"[A-Za-z0-9-]{8,100}", re.ASCII)
_PAYLOADS: Final = {"github": github.PAYLOADS, "gitlab": gitlab.PAYLOADS, "forgejo": github.FORGEJO_PAYLOADS}


def authentic(platform: str, headers: Mapping[str, str], raw: bytes, secrets: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the secrets with which a delivery is signed; header names are in lower case.

    GitHub's older header, with SHA-1, is not accepted.
    """
    given = headers.get(PLATFORMS[platform].proof, "")
    is_secret = platform == "gitlab"
    if not is_secret and not _SIGNATURE.fullmatch(given):
        return frozenset()

    def proof(secret: str) -> bytes:
        if is_secret:
            return secret.encode()
        return b"sha256=" + hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest().encode()

    # All secrets are compared, each in constant time, so that the time taken says nothing about them.
    found = {name: hmac.compare_digest(proof(secret), given.encode()) for name, secret in secrets.items()}
    return frozenset(name for name, matches in found.items() if matches)


def may_be_authentic(platform: str, headers: Mapping[str, str], secrets: Mapping[str, str]) -> bool:
    """Whether the headers hold a possible proof; without one the body need not be read."""
    if platform == "gitlab":
        return bool(authentic(platform, headers, b"", secrets))
    return _SIGNATURE.fullmatch(headers.get(PLATFORMS[platform].proof, "")) is not None


def delivery_id(platform: str, headers: Mapping[str, str], raw: bytes) -> str:
    """Return the id of a delivery, which stays the same when the code host sends it again."""
    if _DELIVERY.fullmatch(given := headers.get(PLATFORMS[platform].delivery, "")):
        return given
    # GitLab before 17.4 has only this id, which related events share, so the body is added.
    related = f"{headers.get('x-gitlab-event-uuid', '')[:40]}:" if platform == "gitlab" else ""
    return f"{related}{hashlib.sha256(raw).hexdigest()}"


def read(platform: str, headers: Mapping[str, str], raw: bytes, mention: str = "runwarden") -> HookEvent | None:
    """Return a delivery's event about a pull request or an issue; None: it has none that a rule can name.

    `mention`: the name, without `@`, with which a comment to this service begins.

    Raises:
        PayloadError: It is about one, and cannot be read.
    """
    name = headers.get(PLATFORMS[platform].event, "")
    model = _PAYLOADS[platform].get(name)
    # Most comments do not mention the service, and need not be read.
    if model is None or (model.is_comment and f"@{mention}".lower().encode() not in raw.lower()):
        return None
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise PayloadError("the body is not JSON: choose the content type application/json for the webhook") from error
    try:
        found = model.model_validate(document).event(mention)
    except ValidationError as error:
        raise PayloadError(first_fault(error)) from error
    is_internal = name == "Confidential Note Hook"
    return replace(found, fault=found.fault or gitlab.INTERNAL) if found and is_internal else found
