"""The root of the service's errors; the console has its own, and shares no code with the service.

ServiceError
├── shown in an operator's terminal: one line, exit status 2 (`cli.output.plain_errors`)
│   ├── SettingsError, SetupError        the settings file, a command or a document asks for something impossible
│   ├── StartError, DatabaseError        a process cannot start; its database cannot be used
│   ├── BackupError                      a back-up cannot be written, read or restored
│   ├── ApprovalError                    a delivery cannot be approved
│   └── EndpointError                    an endpoint may not get events; raised by retries and the page as well
├── shown in an API response: a status and a code (`api.errors`)
│   ├── HttpError                        a request is refused; endpoints turn the errors below into this one
│   ├── InactiveOrganizationError        an organization may not have runs or repositories
│   ├── OnboardingError                  GitLab has no such project, or refuses a request
│   └── PayloadError, UnknownRepositoryError           a delivery cannot be read, or is about no known repository
├── shown in a turn's failure and its log (`execution.turn`)
│   ├── GitCommandError, AgentFailedError, NoSandboxError, NoProgramError, PlaceholderError
│   ├── FindingsError                    an agent's findings are left out
│   └── BlockedRequestError, ClosedPathError, BudgetSpentError, RefusedError   a sandbox's request is not passed on
├── stored with a mail, posting or probe, which is retried, and logged
│   └── MailError, ForgeError, HostUnreachableError
└── shown on the reviewer's standard error: exit status 1, or 2 for a TaskError (`reviewer.__main__`)
    └── TaskError, GitCommandError

An unexpected ServiceError is shown in the same way, except that API callers get a 500 and only the log has the text.
The log has the traceback of any other exception. `InterruptedTurnError` and `SupersededError`, which only end an
attempt, are not failures and have another base.
"""

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic import ValidationError


_FAULTS: Final = {"missing": "is missing", "extra_forbidden": "there is no such key"}
_EXPECTED: Final = {
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    **dict.fromkeys(("model_type", "dict_type", "model_attributes_type"), "a table"),
    "string_type": "a text",
    **dict.fromkeys(("int_type", "float_type"), "a number"),
    "bool_type": "true or false",
}
"""Keyed by pydantic's error type."""
_FOUND: Final[dict[type, str]] = {
    str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table",
    type(None): "null",
}  # fmt: skip
_VALIDATOR: Final = re.compile(r"(function|lax|json|union|chain)-")
"""The name of a validator in a place of pydantic's, which a reader of the document does not know."""
_NAMES: Final = ("name", "alias", "code", "platform")


class ServiceError(Exception):
    """A failure whose text states the fault and, if possible, how to fix it."""


def first_fault(error: "ValidationError", document: Any = None) -> str:
    """Return a document's first fault, with its key unless it concerns the whole document.

    Of a list's entry, the key has the name that the document gives it instead of its position.
    """
    first = error.errors(include_url=False)[0]
    parts = []
    for part in first["loc"]:
        if _VALIDATOR.match(str(part)):
            break
        inside: Any = dict(enumerate(document)) if isinstance(document, list) else document
        document = inside.get(part) if isinstance(inside, dict) else None
        owner = document if isinstance(part, int) and isinstance(document, dict) else {}
        parts.append(next((str(owner[name]) for name in _NAMES if name in owner), str(part)))
    key = ".".join(parts)
    value, limit = first["input"], first.get("ctx", {}).get("max_length")
    fault = _FAULTS.get(first["type"], first["msg"].removeprefix("Value error, "))
    if isinstance(value, str) and not value.strip() and first["type"].startswith("string"):
        fault = "it is blank"
    elif first["type"] == "string_pattern_mismatch":
        pattern = first["ctx"]["pattern"]
        fault = "it is too long, or has wrong characters"
        if "https?://" in pattern:
            fault = f"it is not an http or https address{' with {run_id}' if 'run_id' in pattern else ''}"
    elif isinstance(value, str) and limit is not None:
        fault = f"it has {len(value):,} characters; at most {limit:,} are allowed"
    if expected := _EXPECTED.get(first["type"]):
        # Only the kind of the value: the value itself may be a secret.
        fault = f"{_FOUND.get(type(value), 'another value')} was found where {expected} is expected"
    return f"{key}: {fault}" if key else fault
