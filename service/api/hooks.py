"""POST /hooks/{platform}: deliveries from code hosts, which may start runs; the proof that a host sent one."""

import hashlib
import hmac
import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from service.api.bodies import read_bytes
from service.api.context import RequestContext
from service.api.errors import HttpError, bad_request
from service.errors import first_fault
from service.forge.accounts import complete_event
from service.reference import ALIASES, PLATFORMS
from service.rules import HookEvent, PayloadError
from service.store import repositories, turns
from service.store.deliveries import STARTED, WAITING
from service.triggers import github, gitlab
from service.triggers.receiver import DeliveryDecision, UnknownRepositoryError, WebhookDelivery, receive

router = APIRouter()
# GitHub's older header, with SHA-1, is not accepted.
_SIGNATURE: Final = re.compile(r"sha256=[0-9a-f]{64}")
_DELIVERY: Final = re.compile(r"[A-Za-z0-9-]{8,100}", re.ASCII)
_PAYLOADS: Final = {"github": github.PAYLOADS, "gitlab": gitlab.PAYLOADS, "forgejo": github.FORGEJO_PAYLOADS}
_HEADERS: Final = {
    "x-gitlab-event-uuid",
    *(name for platform in PLATFORMS.values() for name in (platform.event, platform.delivery, platform.proof)),
}


@router.post("/hooks/{platform}", include_in_schema=False)
async def receive_delivery(platform: str, request: Request, context: RequestContext) -> Response:
    """Handle a delivery: 202 if it starts a run, 204 if it starts none."""
    platform = ALIASES.get(platform, platform)

    def find_secrets() -> dict[str, str]:
        with context.database.read() as connection:
            names = repositories.webhook_variables(connection, platform)
        common = context.settings.secret_of_webhooks(platform)
        names |= {common} if common else set()
        return {name: secret for name in names if (secret := os.environ.get(name))}

    secrets = await run_in_threadpool(find_secrets) if platform in PLATFORMS else {}
    if not secrets:
        raise HttpError(404, "not_found", f"there is nothing at {request.url.path}")
    # The body may be unread, so the connection cannot be reused.
    text = "the delivery is not signed with the secret of this webhook"
    unsigned = HttpError(401, "invalid_signature", text, {"Connection": "close"})
    # A header that occurs twice proves nothing, so it is left out.
    headers = {name: values[0] for name in _HEADERS if len(values := request.headers.getlist(name)) == 1}
    try:
        # The body need not be read if the headers hold no possible proof.
        proof = headers.get(PLATFORMS[platform].proof, "")
        if not (authentic(platform, headers, b"", secrets) if platform == "gitlab" else _SIGNATURE.fullmatch(proof)):
            raise unsigned
        raw = await read_bytes(request, context.settings.triggers.body_bytes, context.unproven_deliveries)
        # Parsing and database access happen in threads, so that they do not block the event loop.

        def read() -> WebhookDelivery | None:
            proven = authentic(platform, headers, raw, secrets)
            if not proven:
                raise unsigned
            try:
                event = event_of(platform, headers, raw, context.settings.triggers.mention)
            except PayloadError as error:
                raise bad_request("invalid_payload", str(error)) from error
            if event is None:
                return None
            name = delivery_id(platform, headers, raw)
            return WebhookDelivery(platform, name, event, proven, trace_parent=context.tracer.parent())

        delivery = await context.parsing.run(read)
        decisions: list[DeliveryDecision] = []
        if delivery is not None:
            # A hanging host then delays only deliveries of the same owner.
            share = f"{turns.WEBHOOK}:{platform}:{delivery.event.path.partition('/')[0]}"
            ask = partial(context.accounts.of, delivery.platform, delivery.event.path)
            delivery = replace(delivery, own_accounts=await context.outgoing.run(ask, share))
            if not delivery.event.is_whole:
                complete = partial(complete_event, context.database, context.tokens, platform, delivery.event)
                delivery = replace(delivery, events=await context.outgoing.run(complete, share))
            decisions = await run_in_threadpool(receive, context.database, context.settings, context.clock, delivery)
    except UnknownRepositoryError as error:
        context.metrics.count_delivery(platform, "unknown_repository")
        raise HttpError(404, "unknown_repository", str(error)) from error
    except HttpError as error:
        context.metrics.count_delivery(platform, error.error_code)
        raise
    for decision in decisions or [DeliveryDecision("ignored")]:
        context.metrics.count_delivery(platform, decision.result)
    started = [decision.run_id for decision in decisions if decision.run_id]
    if started:
        context.wake()
    if not any(decision.result in {STARTED, WAITING} for decision in decisions):
        return Response(status_code=204)
    body: dict[str, object] = {"runs": started, "waiting": sum(decision.result == WAITING for decision in decisions)}
    return JSONResponse(body, 202)


def authentic(platform: str, headers: Mapping[str, str], raw: bytes, secrets: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the secrets with which a delivery is signed; header names are in lower case."""
    signature = headers.get(PLATFORMS[platform].proof, "")
    if platform == "gitlab":
        proofs = secrets
    elif _SIGNATURE.fullmatch(signature):
        proofs = {name: f"sha256={hmac.digest(key.encode(), raw, 'sha256').hex()}" for name, key in secrets.items()}
    else:
        return frozenset()
    # All secrets are compared, each in constant time, so that the time taken says nothing about them.
    matching = {name: hmac.compare_digest(proof.encode(), signature.encode()) for name, proof in proofs.items()}
    return frozenset(name for name, matches in matching.items() if matches)


def delivery_id(platform: str, headers: Mapping[str, str], raw: bytes) -> str:
    """Return the id of a delivery, which stays the same when the code host sends it again."""
    if _DELIVERY.fullmatch(name := headers.get(PLATFORMS[platform].delivery, "")):
        return name
    # GitLab before 17.4 has only this id, which related events share, so the body is added.
    related = f"{headers.get('x-gitlab-event-uuid', '')[:40]}:" if platform == "gitlab" else ""
    return f"{related}{hashlib.sha256(raw).hexdigest()}"


def event_of(platform: str, headers: Mapping[str, str], raw: bytes, mention: str = "runwarden") -> HookEvent | None:
    """Return a delivery's event for rules, if any (`PayloadError`: it cannot be read); `mention` is our name."""
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
        event = model.model_validate(document).event(mention)
    except ValidationError as error:
        raise PayloadError(first_fault(error)) from error
    is_internal = name == "Confidential Note Hook"
    if event and is_internal:
        return replace(event, fault=event.fault or gitlab.INTERNAL)
    return event
