"""Reconciliation: what an action of unknown outcome may have made, for a person to decide."""
