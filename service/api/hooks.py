"""POST /hooks/{platform}: deliveries from code hosts, which may start runs."""

import os
from dataclasses import replace
from functools import partial
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from service.api.bodies import Reserve, read_bytes
from service.api.context import Context, RequestContext
from service.api.errors import HttpError, bad_request
from service.forge.accounts import completed
from service.reference import ALIASES, PLATFORMS
from service.store import repositories, turns
from service.store.deliveries import STARTED, WAITING
from service.triggers import deliveries
from service.triggers.events import PayloadError
from service.triggers.receiver import DeliveryDecision, Receiver, UnknownRepositoryError, WebhookDelivery

router = APIRouter()
_UNPROVEN: Final = Reserve(64 << 20)
"""Memory for large bodies of unknown senders: a signature can only be checked after the body was read."""
_HEADERS: Final = {
    "x-gitlab-event-uuid",
    *(name for one in PLATFORMS.values() for name in (one.event, one.delivery, one.proof)),
}


@router.post("/hooks/{platform}", include_in_schema=False)
async def receive(platform: str, request: Request, context: RequestContext) -> Response:
    """Handle a delivery: 202 if it starts a run, 204 if it starts none."""
    platform = ALIASES.get(platform, platform)
    secrets = await run_in_threadpool(_secrets, context, platform) if platform in PLATFORMS else {}
    if not secrets:
        raise HttpError(404, "not_found", f"there is nothing at {request.url.path}")
    # A header that occurs twice proves nothing, so it is left out.
    given = {name: values[0] for name in _HEADERS if len(values := request.headers.getlist(name)) == 1}
    try:
        if not deliveries.may_be_authentic(platform, given, secrets):
            raise _unsigned()
        raw = await read_bytes(request, context.settings.triggers.body_bytes, _UNPROVEN)
        # Parsing and database access happen in threads, so that they do not block the event loop.
        delivery = await context.parsing.run(partial(_read, context, platform, given, raw, secrets))
        decisions: list[DeliveryDecision] = []
        if delivery is not None:
            # So that a host that hangs holds up only deliveries of the same owner.
            share = f"{turns.WEBHOOK}:{platform}:{delivery.event.path.partition('/')[0]}"
            ask = partial(context.accounts.of, delivery.platform, delivery.event.path)
            delivery = replace(delivery, own_accounts=await context.outgoing.run(ask, share))
            if not delivery.event.is_whole:
                complete = partial(completed, context.database, platform, delivery.event)
                delivery = replace(delivery, events=await context.outgoing.run(complete, share))
            receiver = Receiver(context.database, context.settings, context.clock)
            decisions = await run_in_threadpool(receiver.receive, delivery)
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
    body: dict[str, object] = {"runs": started, "waiting": sum(one.result == WAITING for one in decisions)}
    return JSONResponse(body, 202)


def _secrets(context: Context, platform: str) -> dict[str, str]:
    with context.database.read() as connection:
        names = repositories.webhook_variables(connection, platform)
    common = context.settings.secret_of_webhooks(platform)
    names |= {common} if common else set()
    return {name: secret for name in names if (secret := os.environ.get(name))}


def _read(
    context: Context, platform: str, headers: dict[str, str], raw: bytes, secrets: dict[str, str]
) -> WebhookDelivery | None:
    proven = deliveries.authentic(platform, headers, raw, secrets)
    if not proven:
        raise _unsigned()
    try:
        event = deliveries.read(platform, headers, raw, context.settings.triggers.mention)
    except PayloadError as error:
        raise bad_request("invalid_payload", str(error)) from error
    if event is None:
        return None
    name = deliveries.delivery_id(platform, headers, raw)
    return WebhookDelivery(platform, name, event, proven, trace_parent=context.tracer.parent())


def _unsigned() -> HttpError:
    # The body may be unread, so the connection cannot be reused.
    text = "the delivery is not signed with the secret of this webhook"
    return HttpError(401, "invalid_signature", text, {"Connection": "close"})
