"""The forms: each previews its exact request, sends it once and reports the outcome."""

from app.console.forms.agents import StartAgentForm
from app.console.forms.resolve import ResolveForm
from app.console.forms.writes import ContinueRunForm, NewRunForm, OnboardForm, OrganizationForm

__all__ = [
    "ContinueRunForm",
    "NewRunForm",
    "OnboardForm",
    "OrganizationForm",
    "ResolveForm",
    "StartAgentForm",
]
