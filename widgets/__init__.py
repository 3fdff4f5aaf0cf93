"""Widgets: they display given facts, send requests up as messages, and do no I/O."""
