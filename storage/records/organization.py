"""A partner organization, as its creation returned it (spec 2.2)."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

INVITATION_LIFETIME: Final = timedelta(days=30)
"""How long the administrator's invitation holds (spec 3)."""


@dataclass(frozen=True, slots=True)
class Organization:
    """A child organization."""

    organization_id: str
    organization_name: str
    organization_slug: str
    parent_organization_id: str
    raw_json: str
    """As received."""
