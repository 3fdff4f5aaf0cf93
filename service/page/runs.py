"""Runs on the page: the list, a run with its turns, changes and log, and starting, answering and cancelling."""

import json
import re
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import ValidationError

from service.agents.inputs import INSTRUCTIONS, AgentInput
from service.agents.options import DEFAULT_NAME
from service.api import results
from service.api import runs as runs_api
from service.api.bodies import AgentStart, RunMessage, RunStart
from service.api.context import RequestContext
from service.api.errors import HttpError, bad_request
from service.errors import first_fault
from service.findings import count_severities
from service.page import text
from service.page.site import HEADERS, leads_to, page, repository_name
from service.page.visitor import Anybody, Fault, Form, RunReader, RunWriter, Typed, Writer
from service.reference import PLATFORMS, location
from service.store import agents, postings, repositories, turn_files, turns
from service.store.runs import FINAL, OPEN, Run

_FILTERS: Final = ("status", "repository", "date_from", "date_to", "page_token")
_PAGE: Final = 25
_DIFF_BYTES: Final = 36 << 10
"""The most bytes of a change on one page; the rest has separate pages."""
_FILES: Final = 50
_BEFORE: Final = 5
"""Lines that are shown before the one that a finding is about."""
_IMAGES: Final = {"png": "png", "jpg": "jpeg", "jpeg": "jpeg", "gif": "gif", "webp": "webp"}
"""The subtypes of the images that are shown, by the ending of their names. SVG may hold scripts."""
_MAX_MARKDOWN: Final = 64 << 10
_DAY: Final = 10
"""The length of a date such as 2026-11-28."""
router = APIRouter()


def _site_of(run: Run) -> str | None:
    """Return the repository's address on its code host, with which those of branches and commits begin; or None."""
    place = location(run.url)
    # A page on a different port from the repository's could be anything.
    if place is None or not place.host or re.search(r"//[^/]*:\d+(/|$)", run.url):
        return None
    return f"https://{place.host}/{place.path}{'/-' if PLATFORMS[run.platform].has_groups else ''}"


@router.get("/runs")
def list_runs(request: Request, context: RequestContext, caller: RunReader, visitor: Anybody) -> Response:
    """Show the newest runs, filtered as the address says (spec 4.2); a filter that cannot be used is named."""
    filters = {name: request.query_params.get(name, "").strip() for name in _FILTERS}
    query = {name: value for name, value in filters.items() if value} | {"page_size": str(_PAGE)}
    for name, time in (("date_from", "T00:00:00Z"), ("date_to", "T23:59:59.999999Z")):
        if len(query.get(name, "")) == _DAY:
            query[name] += time
    fault, matches, following, count = None, list[Run](), None, 0
    try:
        matches, following, count = runs_api.list_page(context, caller, query)
    except HttpError as error:
        fault = error
    ids = [run.id for run in matches]
    rows: list[dict[str, object]] = []
    with context.database.read() as connection:
        last = turns.newest_of(connection, ids)
        pulls = postings.pull_requests(connection, ids)
        paths = [repository.path for repository in repositories.of(connection, caller.organization.id)]
        for run, turn in ((run, last[run.id]) for run in matches if run.id in last):
            of_turn, reported = (turn.run_id, turn.number), ""
            if turn.outcome == "completed" and (stored := turn_files.content(connection, of_turn, turn_files.FINDINGS)):
                reported = count_severities(finding["severity"] for finding in json.loads(stored)["findings"])
            row = {"run": run, "turn": turn, "findings": reported, "pull_url": pulls.get(run.id)}
            rows.append(row | {"site": _site_of(run), "platform": PLATFORMS[run.platform]})
    facts: dict[str, Any] = {"filters": filters, "statuses": (*OPEN, *FINAL), "known": paths}
    return page("runs", visitor, fault=fault, rows=rows, following=following, count=count, **facts)


@router.get("/runs/new")
def show_new_run(
    context: RequestContext,
    caller: RunWriter,
    visitor: Anybody,
    agent: str = DEFAULT_NAME,
    like: str = "",
    repository: str = "",
    fault: Fault = None,
    typed: Typed = None,
) -> Response:
    """Show the form for a run, as another one if `like` names it."""
    fields = typed or {"agent": agent, "repository": repository}
    if like:
        run = results.run_document(like, context, caller)
        fields = {
            "agent": run["agent"],
            "repository": repository_name(run["repository"]),
            INSTRUCTIONS: run["turns"][0]["instructions"],
        }
    with context.database.read() as connection:
        agent_of = {agent.name: agent for agent in agents.for_organization(connection, caller.organization.id)}
        paths = [repository.path for repository in repositories.of(connection, caller.organization.id)]
    chosen = agent_of.get(fields.get("agent", ""))
    if chosen is None:
        missing = f"there is no agent {fields.get('agent')!r}: choose one below"
        chosen, fault = agent_of[DEFAULT_NAME], fault or HttpError(404, "agent_not_found", missing)
    return page("new_run", visitor, fault=fault, agents=[*agent_of], chosen=chosen, fields=fields, paths=paths)


@router.post("/runs/new")
async def start_run(context: RequestContext, form: Writer, caller: RunWriter, visitor: Anybody) -> Response:
    """Start the chosen agent; a form that cannot be used comes back with all that was typed."""

    def declared() -> dict[str, AgentInput]:
        with context.database.read() as connection:
            agent = agents.by_name(connection, caller.organization.id, form.get("agent"))
        return {} if agent is None else agent.options.inputs

    try:
        body = _start_body(form, await run_in_threadpool(declared))
        started = await runs_api.start_agent(form.get("agent"), context, caller, body)
    except HttpError as error:
        typed = {"repository": ""} | dict(form.fields)
        return await run_in_threadpool(show_new_run, context, caller, visitor, fault=error, typed=typed)
    return leads_to(f"/runs/{started['execution_id']}")


def _start_body(form: Form, declared: dict[str, AgentInput]) -> AgentStart:
    values: dict[str, Any] = {INSTRUCTIONS: form.fields[INSTRUCTIONS]} if form.get(INSTRUCTIONS) else {}
    for name, declaration in declared.items():
        typed = form.fields.get(f"input-{name}", "")
        if declaration.type == "boolean" and not declaration.choices:
            values[name] = typed == "on"
        elif typed.strip() or (declaration.required and declaration.type == "text"):
            try:
                values[name] = typed if declaration.type == "text" and not declaration.choices else json.loads(typed)
            except (ValueError, RecursionError) as error:
                fault = f"the input {name!r} cannot be read: write it as JSON, such as 5 or true"
                raise bad_request("invalid_input", fault) from error
    if not values and not declared:
        raise bad_request("invalid_request", "instructions: describe the task")
    try:
        return AgentStart.model_validate(
            {"repository": form.get("repository"), "branch_name": form.get("branch_name") or None, "inputs": values}
        )
    except ValidationError as error:
        raise bad_request("invalid_request", first_fault(error)) from error


@router.get("/runs/{run_id}")
def show_run(
    run_id: str, context: RequestContext, caller: RunReader, visitor: Anybody, fault: Fault = None, typed: Typed = None
) -> Response:
    run = results.run_document(run_id, context, caller)
    last, words = run["turns"][-1], (typed or {}).get(INSTRUCTIONS, "")
    return page("run", visitor, fault=fault, run=run, last=last, is_active=last["outcome"] is None, typed=words)


@router.post("/runs/{run_id}/reply")
async def reply(run_id: str, context: RequestContext, form: Writer, caller: RunWriter, visitor: Anybody) -> Response:
    """Continue a run with the visitor's text (spec 4.3)."""
    run = await run_in_threadpool(results.run_document, run_id, context, caller)
    words = form.get("choice") or form.fields.get(INSTRUCTIONS, "")
    begin_with = form.get("start_from") or None
    try:
        if not words.strip():
            raise bad_request("invalid_request", "describe the next task")
        if begin_with not in {None, "patch", "branch"}:
            raise bad_request("invalid_query", "start_from must be patch or branch")
        start = RunStart.model_validate({INSTRUCTIONS: words, "repository": run["repository"], "run_id": run_id})
        await runs_api.begin(context, caller, start, begin_with)
    except HttpError as error:
        return await run_in_threadpool(show_run, run_id, context, caller, visitor, error, {INSTRUCTIONS: words})
    return leads_to(f"/runs/{run_id}")


@router.post("/runs/{run_id}/message")
def say(run_id: str, context: RequestContext, form: Writer, caller: RunWriter, visitor: Anybody) -> Response:
    words = form.fields.get(INSTRUCTIONS, "")
    try:
        message = RunMessage.model_validate({"text": words, "when": form.get("when") or "now"})
        results.say(context, caller, run_id, message, form.get("after"))
    except (HttpError, ValidationError) as error:
        fault = error if isinstance(error, HttpError) else bad_request("invalid_request", first_fault(error))
        return show_run(run_id, context, caller, visitor, fault, {INSTRUCTIONS: words})
    return leads_to(f"/runs/{run_id}")


@router.post("/runs/{run_id}/cancel")
def cancel(run_id: str, context: RequestContext, _: Writer, caller: RunWriter) -> Response:
    results.cancel_run(run_id, context, caller)
    return leads_to(f"/runs/{run_id}")


@router.get("/runs/{run_id}/changes")
def show_changes(
    run_id: str,
    context: RequestContext,
    caller: RunReader,
    visitor: Anybody,
    turn: str = "",
    file: int = -1,
    start: int = 0,
    path: str = "",
    line: int = 0,
) -> Response:
    """Show the change of a turn, of the whole run if none is named, of one file if one is named, or around a line."""
    run = results.run_document(run_id, context, caller)
    patch = None
    try:
        patch = bytes(read_patch(run_id, context, caller, turn).body)
    except HttpError as error:
        if error.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            raise
    is_large = patch is None or len(patch) > turn_files.MAX_DIFF
    files = [] if patch is None or is_large else text.diff_files(patch.decode("utf-8", "replace"))
    if path:
        file = next((number for number, file_diff in enumerate(files) if file_diff.path == path), -1)
        lines = files[file].lines if file >= 0 else []
        places = [number for number, diff_line in enumerate(lines) if diff_line.new == line]
        start = max(0, places[0] - _BEFORE) if places else 0
    first = max(0, min(file, len(files) - 1)) // _FILES * _FILES
    page_files = files[first : first + _FILES]
    chosen, start = files[file : file + 1] if file >= 0 else page_files, max(0, start)
    facts: dict[str, Any] = {
        "turn": turn,
        "is_large": is_large,
        "count": len(files),
        "first": first,
        "listed": page_files,
        "shown": list(text.colour_files(chosen, start, _DIFF_BYTES)),
        "start": start,
        "file": file,
    }
    return page("changes", visitor, run=run, path=path, line=line, **facts)


@router.get("/runs/{run_id}/changes.patch")
def read_patch(run_id: str, context: RequestContext, caller: RunReader, turn: str = "") -> Response:
    of_turn = results.read_turn_diff
    response = of_turn(run_id, turn, context, caller) if turn else results.read_run_diff(run_id, context, caller)
    response.headers.update(HEADERS)
    return response


@router.get("/runs/{run_id}/artifact")
def show_artifact(
    run_id: str, request: Request, context: RequestContext, caller: RunReader, visitor: Anybody
) -> Response:
    """Show an artifact that is an image or Markdown; any other, or with `save`, is for saving."""
    turn, name, save = (request.query_params.get(parameter, "") for parameter in ("turn", "name", "save"))
    response = results.read_artifact(run_id, turn, name, context, caller)
    ending = name.rpartition(".")[2].lower()
    if ending in _IMAGES:
        response.headers["Content-Type"] = f"image/{_IMAGES[ending]}"
    is_text = ending in {"md", "markdown"} and len(response.body) <= _MAX_MARKDOWN
    if save or not (is_text or ending in _IMAGES):
        response.headers.update({name: value for name, value in HEADERS.items() if name not in response.headers})
        return response
    run = results.run_document(run_id, context, caller)
    words = bytes(response.body).decode("utf-8", "replace") if is_text else None
    return page("artifact", visitor, run=run, turn=turn, path=name, words=words)
