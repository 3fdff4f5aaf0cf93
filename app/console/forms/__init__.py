"""The forms: each shows exactly what it will send, sends it once, and says what became of it."""

from app.console.forms.agent import StartAgentForm
from app.console.forms.onboard import OnboardForm
from app.console.forms.organization import OrganizationForm
from app.console.forms.resolve import ResolveForm
from app.console.forms.runs import ContinueRunForm, NewRunForm

__all__ = [
    "ContinueRunForm",
    "NewRunForm",
    "OnboardForm",
    "OrganizationForm",
    "ResolveForm",
    "StartAgentForm",
]
