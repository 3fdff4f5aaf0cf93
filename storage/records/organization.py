"""What the service reports about an organization: its named agents and its invitations."""

from datetime import datetime

from msgspec import Struct


class AgentInput(Struct, frozen=True):
    """An input that a named agent takes."""

    name: str
    type: str = "any"
    description: str = ""
    default: str | None = None
    """The default as it is typed on a command line, or None if it has none."""
    choices: tuple[str, ...] = ()
    """The only values, as they are typed; if there are none, any of its type."""
    is_required: bool = False


class NamedAgent(Struct, frozen=True):
    """An agent that can be started by name."""

    name: str
    description: str = ""
    inputs: tuple[AgentInput, ...] = ()
    """If there are none, any input is taken."""


class Invitation(Struct, frozen=True):
    """The invitation of a new organization's administrator, as last reported by the service."""

    invitation_id: str
    organization_id: str
    email: str
    state: str = ""
    """`waiting`, `sent`, `refused`, `accepted`, `withdrawn` or `expired`, as received."""
    sent_at: datetime | None = None
    expires_at: datetime | None = None
    accepted_at: datetime | None = None
    failure: str | None = None
    """Why its mail was not sent, or None if there is nothing to explain."""
    mail: str = ""
    """Where the service's mail goes: `smtp` or `outbox`; empty if that is not reported."""
