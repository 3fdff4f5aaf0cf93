"""Widgets of the screens of profiles."""
