"""Acme's service."""
