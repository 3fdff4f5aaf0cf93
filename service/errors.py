"""The root of the service's errors; the console has its own, and shares no code with the service.

ServiceError
├── in an operator's terminal: one line, exit status 2 (`cli.output.plain_errors`)
│   ├── SettingsError, SetupError        the settings file, or what a command or a document asks for, cannot be met
│   ├── StartError, DatabaseError        a process cannot start; its database cannot be used
│   ├── BackupError                      a back-up cannot be written, read or restored
│   ├── ApprovalError                    a delivery cannot be approved
│   └── EndpointError                    an endpoint may not be told of events; also at a retry, and on the page
├── in an answer of the API: a status and a code (`api.errors`)
│   ├── HttpError                        a request is refused; endpoints make those below into one
│   ├── InactiveOrganizationError        an organization may not have runs or repositories
│   ├── OnboardingError                  GitLab has no such project, or refuses a request
│   └── PayloadError, UnknownRepositoryError           a delivery cannot be read, or is about no known repository
├── in a turn's failure and its log (`execution.turn`)
│   ├── GitCommandError, AgentFailedError, NoSandboxError, NoProgramError, PlaceholderError
│   ├── FindingsError                    an agent's findings are left out
│   └── BlockedRequestError, ClosedPathError, BudgetSpentError, NotTlsError    a sandbox's request is not passed on
├── at what is retried: a mail, a posting, a probe (their tables and the log)
│   └── MailError, ForgeError, HostUnreachableError
└── on the reviewer's standard error: exit status 1, or 2 for a TaskError (`reviewer.__main__`)
    └── TaskError, GitCommandError

One that its place does not expect is shown in the same way, but a caller of the API gets a 500 and only the log has
its text. The log has the traceback of any other exception. What only ends an attempt
(`InterruptedTurnError`, `SupersededError`) is not a failure and has another base.
"""

from typing import TYPE_CHECKING, Final

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
"""By pydantic's type of the fault."""
_FOUND: Final[dict[type, str]] = {
    str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table",
    type(None): "null",
}  # fmt: skip


class ServiceError(Exception):
    """A failure whose text says to its reader what is wrong and, where there is one, the cure."""


def first_fault(error: "ValidationError") -> str:
    """Return the key of a document's first fault, unless that is the document itself, and what is wrong with it."""
    first = error.errors(include_url=False, include_context=False)[0]
    key = ".".join(map(str, first["loc"]))
    said = _FAULTS.get(first["type"], first["msg"])
    if expected := _EXPECTED.get(first["type"]):
        # The kind of a value, and never the value: it may be a secret.
        said = f"{_FOUND.get(type(first['input']), 'another value')} was found where {expected} is expected"
    return f"{key}: {said}" if key else said
