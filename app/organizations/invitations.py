"""What the service says about organizations: their invitations, and who may create them."""

from app.api.errors import ApiError, ForbiddenError, NotOfferedError, RefusedError
from app.engine.engine import Engine
from storage.records.organization import Invitation


async def read_invitations(engine: Engine) -> tuple[Invitation, ...] | None:
    """The invitations with their states; None: the service does not report them. Otherwise an `ApiError` is raised."""
    try:
        return await engine.client.invitations()
    except (ForbiddenError, NotOfferedError):
        return None


async def may_create(engine: Engine) -> bool | None:
    """Whether the token may create organizations, or None if the service cannot be asked now."""
    try:
        return await engine.client.may_create_organizations()
    except RefusedError:
        return False
    except ApiError:
        return None
