"""Figures over the cached runs."""
