"""Followed runs."""
