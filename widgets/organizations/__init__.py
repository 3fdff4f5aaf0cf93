"""Widgets of the organizations' screen."""
