"""What the service says about organizations: which were created, their invitations, and who may create them."""

from app.api.errors import ApiError, ForbiddenError, NotOfferedError, RefusedError
from app.api.wire import organization
from app.engine.engine import Engine
from storage.records import Action, Organization
from storage.records.results import Invitation


def organization_of(action: Action) -> Organization | None:
    """The organization that an action created; None: it created none, or the outcome is unknown."""
    if action.response_json is None or action.state != "confirmed":
        return None
    return organization(action.response_json)


async def read_invitations(engine: Engine) -> tuple[Invitation, ...] | None:
    """The invitations with their states; None: the service does not report them. Otherwise an `ApiError` is raised."""
    try:
        return await engine.client.invitations()
    except (ForbiddenError, NotOfferedError):
        return None


async def may_create(engine: Engine) -> bool | None:
    """Whether the token may create organizations; None: the service cannot be asked now."""
    try:
        return await engine.client.may_create_organizations()
    except RefusedError:
        return False
    except ApiError:
        return None
