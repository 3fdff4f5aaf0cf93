"""Widgets of the screens of actions."""
