"""A form that begins with an earlier request, to correct it and send it as a new action."""

import json
from contextlib import suppress
from typing import assert_never

from app.api.requests import (
    CancelRun,
    ContinueRun,
    CreateOrganization,
    Json,
    OnboardProject,
    StartAgent,
    StartRun,
    WriteRequest,
    asked_of,
)
from app.console.forms.action_form import ActionForm
from app.console.forms.copies import UnfaithfulError
from app.console.forms.drafts import Values, named
from app.console.forms.fields import faithful, read_value
from app.console.forms.onboard import OnboardForm
from app.console.forms.organization import OrganizationForm
from app.console.forms.runs import ContinueRunForm, NewRunForm, StartAgentForm
from app.engine import Engine
from storage.records import Action
from widgets.forms.inputs import LONGEST_LINE, printable
from widgets.forms.pairs import packed, unpacked


async def form_for(engine: Engine, action: Action) -> ActionForm:
    """Return the right form with the action's request filled in; edits are a draft of that action.

    Raises:
        UnfaithfulError: No form shows the request exactly as it was sent.
        StorageError: The cache cannot be read.
    """
    request = _asked(action)
    form, values = await _form(engine, request), _values(request)
    if form.build(values) != request or not all(_is_shown(*value) for value in values.items()):
        raise UnfaithfulError("No form can show it exactly as it was sent; send it again from the command line.")
    form.begin_with(values, named("resend", action.action_id))
    return form


def _asked(action: Action) -> WriteRequest:
    with suppress(KeyError, TypeError, ValueError, IndexError):
        return asked_of(action)
    raise UnfaithfulError("Another version of Runwarden wrote it; send it again from the command line.")


async def _form(engine: Engine, request: WriteRequest) -> ActionForm:
    match request:
        case StartRun():
            return NewRunForm(engine)
        case ContinueRun():
            detail = await engine.cache.detail(request.run_id)
            if detail is None:
                raise UnfaithfulError("Its run is not listed here: fetch older runs first, with M under Runs.")
            finals = await engine.cache.final_statuses()
            return ContinueRunForm(engine, detail.run, final_statuses=finals, sent=request)
        case StartAgent():
            return StartAgentForm(engine)
        case CreateOrganization():
            return OrganizationForm(engine)
        case OnboardProject():
            return OnboardForm(engine)
        case CancelRun():
            raise UnfaithfulError("Cancelling has no form; cancel the run again instead: that does no harm.")


def _values(request: WriteRequest) -> Values:
    """The values of the form's fields."""
    values: dict[str, str | None]
    match request:
        case StartRun():
            values = {
                "repository": request.repository.label,
                "branch_name": request.branch_name,
                "instructions": request.instructions,
                "metadata": _pairs(request.metadata),
            }
        case ContinueRun():
            values = {"instructions": request.instructions}
        case StartAgent():
            values = {
                "name": request.name,
                "repository": request.repository,
                "branch_name": request.branch_name,
                "inputs": _pairs(request.inputs),
            }
        case CreateOrganization():
            values = {"email": request.email, "offer_code": request.offer_code}
        case OnboardProject():
            number = None if request.project_id is None else str(request.project_id)
            values = {"project_path": request.project_path, "project_id": number}
        case CancelRun():
            values = {}
        case _:
            assert_never(request)
    return {key: text or "" for key, text in values.items()}


def _pairs(values: dict[str, Json]) -> str:
    """Keys and values as a user would type them."""
    return packed(tuple((key, _typed(value)) for key, value in values.items()))


def _typed(value: Json) -> str:
    # Text that would be read or shown as another value is quoted.
    is_plain = isinstance(value, str) and read_value(value) == value == faithful(value)
    return str(value) if is_plain else json.dumps(value)


def _is_shown(field: str, text: str) -> bool:
    """Whether the field shows exactly this."""
    if field == "instructions":
        return printable(text) == text
    lines = [part for pair in unpacked(text) for part in pair] if field in {"metadata", "inputs"} else [text]
    return all(faithful(line) == line and len(line) <= LONGEST_LINE for line in lines)
