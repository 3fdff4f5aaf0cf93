"""Triggers: deliveries about a pull request start runs where the repository has rules."""
