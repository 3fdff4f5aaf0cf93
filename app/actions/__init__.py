"""Acting once: every write is prepared in the ledger, sent at most one time, and settled or left to a person."""

from app.actions.actions import Actions
from app.actions.refusals import ActionRefused, AlreadyAsked, Blocked, InvalidRequest, ReadOnly
from app.actions.validate import Problem, problems

__all__ = ["ActionRefused", "Actions", "AlreadyAsked", "Blocked", "InvalidRequest", "Problem", "ReadOnly", "problems"]
