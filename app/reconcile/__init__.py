"""Reconciliation: possible results of an action of unknown outcome, for the user to decide."""
