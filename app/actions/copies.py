"""A request as text for a shell: for curl, and as a runwarden command."""

import json
import shlex
from collections.abc import Iterator

from app.api.requests import (
    CancelRun,
    ContinueRun,
    CreateOrganization,
    Json,
    OnboardProject,
    ResendInvitation,
    SayToRun,
    StartAgent,
    StartRun,
    WriteRequest,
    as_json,
)
from app.engine.text import json_escaped, json_or_text, safe_text
from storage import RunwardenError


class UnfaithfulError(RunwardenError):
    """A value holds characters that a shell or a terminal would act on; the message has the fix."""


def as_curl(base_url: str, request: WriteRequest) -> str:
    """The request for curl, which takes the token from the shell's RUNWARDEN_TOKEN.

    Raises `UnfaithfulError` if a value cannot be pasted into a shell as it is.
    """
    url = _faithful(f"{base_url}{request.path}")
    return " \\\n  ".join(
        (
            f"curl --request POST {shlex.quote(url)}",
            '--header "Authorization: Bearer $RUNWARDEN_TOKEN"',
            "--header 'Content-Type: application/json'",
            f"--data-raw {shlex.quote(json_escaped(as_json(request)))}",
        )
    )


def as_command(command_line: str, profile: str, request: WriteRequest) -> str:
    """The request as a runwarden command for this profile, even if the command line names another.

    Raises `UnfaithfulError` if a value cannot be pasted into a shell as it is.
    """
    words: tuple[str, ...]
    match request:
        case StartRun() | ContinueRun():
            if request.instructions.strip() == "-":
                raise UnfaithfulError("The command would read - from its input; copy it as curl instead.")
            options = tuple(_options(request.branch_name, "metadata", request.metadata))
            words = "runs", "start", f"--repository={request.repository.label}", *options, request.instructions
            if isinstance(request, ContinueRun):
                start = () if request.start_from is None else (f"--from-{request.start_from}",)
                words = "runs", "continue", *start, *options, request.run_id, request.instructions
        case CancelRun():
            words = "runs", "cancel", "--", request.run_id
        case SayToRun():
            words = "runs", "say", f"--when={request.when}", "--", request.run_id, request.text
        case ResendInvitation():
            words = "orgs", "resend", "--", request.invitation_id
        case StartAgent():
            options = tuple(_options(request.branch_name, "input", request.inputs))
            words = "agents", "start", f"--repository={request.repository}", *options, request.name
        case CreateOrganization():
            offer = (f"--offer-code={request.offer_code}",) if request.offer_code else ()
            words = "orgs", "create", *offer, "--", request.email
        case OnboardProject():
            project = request.project_path if request.project_id is None else str(request.project_id)
            words = "gitlab", "onboard", "--", project or ""
    argv = (*shlex.split(command_line), f"--profile={profile}", *words)
    return " ".join(shlex.quote(_faithful(word)) for word in argv)


def _options(branch: str | None, option: str, values: dict[str, Json]) -> Iterator[str]:
    if branch:
        yield f"--branch={branch}"
    for key, value in values.items():
        # Text that would be read as JSON stays quoted.
        is_plain = isinstance(value, str) and json_or_text(value) == value
        yield f"--{option}={key}={value if is_plain else json.dumps(value)}"
    yield "--"


def _faithful(text: str) -> str:
    if any(safe_text(line, limit=len(line) + 1) != line for line in text.split("\n")):
        raise UnfaithfulError("A value contains control characters; copy it as curl instead.")
    return text
