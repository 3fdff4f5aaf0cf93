"""Reading a request back from the ledger, to send it knowingly once more."""

import json
from urllib.parse import unquote

from app.api.requests import (
    ContinueRun,
    CreateOrganization,
    OnboardProject,
    StartAgent,
    StartRun,
    WriteRequest,
)
from storage.records import Action, Repository


def request_of(action: Action) -> WriteRequest:
    """The request that the action sent."""
    body = json.loads(action.body_json)
    match action.kind:
        case "run.start":
            return StartRun(body["instructions"], _repository(body), body.get("branch_name"), body.get("metadata", {}))
        case "run.continue":
            return ContinueRun(
                body["run_id"],
                body["instructions"],
                _repository(body),
                body.get("branch_name"),
                body.get("metadata", {}),
            )
        case "agent.start":
            name = unquote(action.path.split("/")[-2])
            return StartAgent(name, body["repository"], body.get("branch_name"), body.get("inputs", {}))
        case "organization.create":
            return CreateOrganization(body["email"], body.get("offer_code"))
        case "gitlab.onboard":
            return OnboardProject(body.get("project_path"), body.get("project_id"))


def _repository(body: dict[str, dict[str, object]]) -> Repository:
    reference = body["repository"]
    data = reference["data"]
    return Repository.of(str(reference["platform"]), data if isinstance(data, dict) else {})
