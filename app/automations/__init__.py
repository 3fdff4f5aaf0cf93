"""Automations: rules carried out by one process at a time, each occurrence at most once, each decision explained."""
