"""The forms: each previews its exact request, sends it once and reports the outcome."""

from app.console.forms.onboard import OnboardForm
from app.console.forms.organization import OrganizationForm
from app.console.forms.resolve import ResolveForm
from app.console.forms.runs import ContinueRunForm, NewRunForm, StartAgentForm

__all__ = [
    "ContinueRunForm",
    "NewRunForm",
    "OnboardForm",
    "OrganizationForm",
    "ResolveForm",
    "StartAgentForm",
]
