"""Profiles among others."""
