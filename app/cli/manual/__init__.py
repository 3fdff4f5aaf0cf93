"""Explanations of the commands: examples, manual pages and completion."""
